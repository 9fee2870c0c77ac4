// SPDX-License-Identifier: Apache-2.0
// Exceptions of the ONNX library, as messages of ours: without its tags, source files and conditions, at the node.
#include "Proto.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

#include <algorithm>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
/// A message of the library, taken apart.
struct Explained {
  std::string node, opType, text;
};
} // namespace

/// Takes matches of `pattern` out of the text; hands their groups to `visit`.
static void take(std::string &text, StringRef pattern, llvm::function_ref<void(ArrayRef<StringRef>)> visit) {
  llvm::Regex regex(pattern);
  SmallVector<StringRef> groups;
  while (regex.match(text, &groups)) {
    std::string rest = (StringRef(text.data(), groups[0].data() - text.data()) + " " +
                        StringRef(text).substr(groups[0].end() - text.data()))
                           .str();
    visit(groups);
    text = std::move(rest);
  }
}

/// Of the nodes that inference lists, the first one: it is the cause. Of nested graphs, the innermost.
static void takeFirstNode(std::string &text, Explained &result) {
  llvm::Regex header("\\(op_type:([^,)]*)(, node name: ([^)]*))?\\): ?");
  SmallVector<StringRef> groups;
  StringRef rest = text, body = text;
  while (header.match(rest, &groups)) {
    result.opType = groups[1].str();
    result.node = groups[3].str();
    rest = rest.substr(groups[0].end() - rest.data());
    body = header.match(rest, &groups) ? rest.take_front(groups[0].data() - rest.data()) : rest;
    if (!body.contains("Inference error(s)"))
      break;
  }
  text = body.str();
}

static Explained explain(StringRef what) {
  Explained result;
  // Behind the message of a node come the nodes and graphs around it.
  std::string text = what.split("==> Context:").first.str();
  StringRef contexts = what.split("==> Context:").second;
  if (auto [before, named] = contexts.split("Name: "); !named.empty()) {
    auto [name, type] = named.split("OpType:");
    result.node = name.trim().str();
    result.opType = type.trim().split('\n').first.split(' ').first.str();
  }
  std::string place;
  take(text, "\\[ParseError at position .line: ([0-9]+) column: ([0-9]+).\\]",
       [&](ArrayRef<StringRef> groups) { place = ("line " + groups[1] + ", column " + groups[2] + ": ").str(); });
  take(text, "Error context:[^\n]*\n", [](ArrayRef<StringRef>) {});
  takeFirstNode(text, result);
  auto drop = [](ArrayRef<StringRef>) {};
  take(text, "\\[[A-Za-z]*Error\\]", drop);
  take(text, "Inference error\\(s\\):", drop);
  take(text, "[^ ]+\\.(cc|cpp|h|hpp):[0-9]+:[^:`]*: Assertion `[^`]*` failed(: )?", drop);
  take(text, "Assertion `[^`]*` failed(: )?", drop);
  take(text, "[^ ]+\\.(cc|cpp|h|hpp):[0-9]+:?", drop);
  // The standard library's say where in it something was looked up, and nothing of the model.
  if (llvm::Regex("^(std::|map::|vector::|basic_string|_Map|sto[a-z]+$|bad_)").match(StringRef(text).trim()))
    text.clear();
  std::replace(text.begin(), text.end(), '\n', ' ');
  SmallVector<StringRef> words;
  StringRef(text).split(words, ' ', -1, /*KeepEmpty=*/false);
  result.text = llvm::join(words, " ");
  if (result.text.empty())
    result.text = "attributes or operands that contradict the operator";
  result.text = place + (result.opType.empty() ? "" : result.opType + ": ") + result.text;
  return result;
}

std::string proto::plainMessage(StringRef what) { return explain(what).text; }

/// Gives unnamed nodes the names by which diagnostics speak of them.
static void nameNodes(ModelProto &model) {
  auto name = [](NodeProto &node) {
    node.set_name(proto::nodeName(node).str());
    return success();
  };
  (void)proto::visitNodes(*model.mutable_graph()->mutable_node(), name);
  for (FunctionProto &function : *model.mutable_functions())
    (void)proto::visitNodes(*function.mutable_node(), name);
}

LogicalResult proto::checkByLibrary(ModelProto &model, StringRef expected, MLIRContext *context,
                                    llvm::function_ref<std::optional<std::string>()> check) {
  std::optional<std::string> what = check();
  if (!what)
    return success();
  // Once more, with names that the message can say.
  nameNodes(model);
  if (std::optional<std::string> named = check())
    what = named;
  Explained explained = explain(*what);
  StringRef at = explained.node.empty() ? StringRef(model.graph().name()) : StringRef(explained.node);
  return emitError(namedLoc(context, at))
         << "expected " << expected << ": " << explained.text << " [mpt-invalid-model]";
}
