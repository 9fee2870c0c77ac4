// SPDX-License-Identifier: Apache-2.0
// The compiler's answers to questions about itself: lists from its registries, explanations, and completion for shells.
#include "mpt/Driver/Questions.h"

#include "mpt/Autodiff/LossSpec.h"
#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Driver/CompileOptions.h"
#include "mpt/Driver/Explanations.h"
#include "mpt/Import/Import.h"
#include "mpt/Precision/BuiltinPolicies.h"
#include "mpt/Target/Target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace mpt;

/// The first sentence of each policy's file.
static std::vector<Described> describePolicies() {
  std::vector<Described> all;
  for (StringRef name : builtinPolicies()) {
    std::string head;
    SmallVector<StringRef> lines;
    builtinPolicyText(name)->split(lines, '\n');
    for (StringRef line : lines) {
      if (!line.consume_front("// "))
        break;
      head += (head.empty() ? "" : " ") + line.str();
    }
    all.push_back({name, StringRef(head).split(". ").first.rtrim('.').str()});
  }
  return all;
}

static std::vector<Described> describeTargets() {
  std::vector<Described> all;
  for (const std::unique_ptr<target::Target> &target : target::allTargets())
    all.push_back({target->name(), ""});
  return all;
}

/// Words to list, and the flag whose values they are.
struct List {
  StringRef word, flag;
  std::vector<Described> (*entries)();
};
static const List lists[] = {{"--list-policies", "--policy", describePolicies},
                             {"--list-losses", "--loss", describeLosses},
                             {"--list-optimizers", "--optimizer", describeOptimizers},
                             {"--list-ops", "", describeOperators},
                             {"--explain", "--explain", describeRefusals},
                             {"", "--target", describeTargets}};

/// Completes flags, and the values that lists have; other words are files. zsh runs bash's form.
static std::string completion(bool isZsh) {
  std::string cases;
  for (const List &list : lists)
    if (!list.flag.empty())
      cases += "  " + list.flag.str() + "=*) words=\"" +
               join(map_range(list.entries(), [](const Described &one) { return one.name; }), " ") + "\" ;;\n";
  std::string flags = "--help --version";
  for (const List &list : lists)
    if (!list.word.empty())
      flags += " " + list.word.str() + (list.word == list.flag ? "=" : "");
  for (const Described &flag : CompileOptions::flags())
    flags += " " + flag.name.str() + (flag.text.empty() ? "" : "=");
  return std::string(isZsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + R"(_mpt() {
  local line="${COMP_LINE:0:COMP_POINT}" words
  local word="${line##*[[:space:]]}"
  case "$word" in
)" + cases +
         R"(  -*=*) words= ;;
  -*) COMPREPLY=($(compgen -W ")" +
         flags + R"(" -- "$word")); return ;;
  esac
  # A value begins behind the equals sign, where the shell breaks words.
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "${word#*=}"))
  else COMPREPLY=($(compgen -f -- "${word#*=}")); fi
}
complete -o nospace -o filenames -F _mpt mpt-opt mpt-run
)";
}

/// The compiler's answer to words that ask about it; nothing for other words.
static std::optional<Expected<std::string>> answer(ArrayRef<StringRef> words) {
  if (words.empty())
    return CompileOptions::help();
  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    if (word == "--version")
      return versionText();
    if (word == "--help" || word.consume_front("--help="))
      return CompileOptions::help(word == "--help" ? "" : word);
    if (word == "--completion" || word.consume_front("--completion=")) {
      if (word != "bash" && word != "zsh")
        return createStringError("expected bash|zsh for --completion, got '" + word + "'");
      return completion(word == "zsh");
    }
    if (word.consume_front("--explain="))
      return explain(word);
    if (word == "--explain" && i + 1 < words.size())
      return explain(words[i + 1]);
    const List *list = find_if(lists, [&](const List &list) { return list.word == word; });
    if (list == std::end(lists))
      continue;
    std::string text;
    for (const Described &one : list->entries())
      text += formatv("{0,-24} {1}\n", one.name, one.text);
    return text;
  }
  return std::nullopt;
}

std::optional<bool> mpt::answered(StringRef tool, ArrayRef<StringRef> words) {
  std::optional<Expected<std::string>> text = answer(words);
  if (!text)
    return std::nullopt;
  if (*text)
    outs() << **text;
  else
    errs() << tool << ": " << toString(text->takeError()) << "\n";
  return static_cast<bool>(*text);
}

bool mpt::isCompilation(ArrayRef<StringRef> words) {
  bool isText = any_of(words, [](StringRef word) { return word.ends_with(".mlir"); });
  return words.empty() || any_of(words, [isText](StringRef word) {
           StringRef flag = word.split('=').first;
           // Also one without a training model, so that the message is about that.
           bool isFolder = !isText && !word.starts_with("-") && sys::fs::is_directory(word);
           return isFolder || word.ends_with(".onnx") || word.ends_with(".onnxtxt") || word.ends_with(".ort") ||
                  is_contained({"--emit", "--from", "--to", "--help", "--version", "--completion", "--explain"},
                               flag) ||
                  flag.starts_with("--list-");
         });
}
