// SPDX-License-Identifier: Apache-2.0
// Processor features by the names that the operating system and the processor report.
#include "core/Features.h"

#include <cstdio>
#include <set>
#include <sys/auxv.h>
#include <vector>

namespace mpt::rt {
namespace {

/// Linux and LLVM spell the same feature avx512_bf16 and avx512bf16, sse4_2 and sse4.2.
std::string plain(const std::string &name) {
  std::string out;
  for (char c : name)
    if (c != '_' && c != '.' && c != '-' && c != '+')
      out += c;
  return out;
}

/// Features that the processor itself reports: containers may hide or shorten /proc/cpuinfo.
void askProcessor(std::set<std::string> &features) {
#if defined(__x86_64__) && defined(__clang__)
#define MPT_ASK(name) {name, __builtin_cpu_supports(name) != 0}
  const std::pair<const char *, bool> known[] = {
      MPT_ASK("sse3"),       MPT_ASK("ssse3"),        MPT_ASK("sse4.1"),      MPT_ASK("sse4.2"),
      MPT_ASK("sse4a"),      MPT_ASK("popcnt"),       MPT_ASK("avx"),         MPT_ASK("avx2"),
      MPT_ASK("fma"),        MPT_ASK("f16c"),         MPT_ASK("bmi"),         MPT_ASK("bmi2"),
      MPT_ASK("lzcnt"),      MPT_ASK("movbe"),        MPT_ASK("gfni"),        MPT_ASK("avx512f"),
      MPT_ASK("avx512bw"),   MPT_ASK("avx512vl"),     MPT_ASK("avx512dq"),    MPT_ASK("avx512cd"),
      MPT_ASK("avx512ifma"), MPT_ASK("avx512vbmi"),   MPT_ASK("avx512vbmi2"), MPT_ASK("avx512vnni"),
      MPT_ASK("avxvnni"),    MPT_ASK("avx512bitalg"), MPT_ASK("avx512bf16"),  MPT_ASK("avx512vpopcntdq"),
      MPT_ASK("avx512fp16")};
#undef MPT_ASK
  for (auto [name, has] : known)
    if (has)
      features.insert(plain(name));
#elif defined(__aarch64__) && defined(__linux__)
  // Bits of the kernel's two words, by LLVM's names (asm/hwcap.h).
  const std::pair<const char *, int> first[] = {{"lse", 8},        {"fullfp16", 10}, {"rdm", 12}, {"jsconv", 13},
                                                {"complxnum", 14}, {"dotprod", 20},  {"sve", 22}, {"fp16fml", 23}};
  const std::pair<const char *, int> second[] = {{"sve2", 1}, {"fptoint", 8}, {"i8mm", 13}, {"bf16", 14}, {"mops", 43}};
  for (auto [name, bit] : first)
    if (getauxval(AT_HWCAP) >> bit & 1)
      features.insert(name);
  for (auto [name, bit] : second)
    if (getauxval(AT_HWCAP2) >> bit & 1)
      features.insert(name);
#endif
}

std::set<std::string> readFeatures() {
  // Names that LLVM and Linux spell altogether differently.
  static const std::vector<std::pair<const char *, const char *>> also = {
      {"pni", "sse3"},    {"abm", "lzcnt"},      {"bmi1", "bmi"},   {"rdrand", "rdrnd"},
      {"shani", "sha"},   {"lm", "64bit"},       {"fpu", "x87"},    {"pclmulqdq", "pclmul"},
      {"lahflm", "sahf"}, {"sse42", "crc32"},    {"asimd", "neon"}, {"3dnowprefetch", "prfchw"},
      {"fp", "fparmv8"},  {"usershstk", "shstk"}};
  std::set<std::string> features;
  askProcessor(features);
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file)
    return features;
  std::string line;
  for (int c; (c = fgetc(file)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
      std::string word;
      for (size_t i = line.find(':') + 1; i <= line.size(); ++i) {
        if (i < line.size() && line[i] != ' ') {
          word += line[i];
        } else if (!word.empty()) {
          features.insert(plain(word));
          word.clear();
        }
      }
      break;
    }
    line.clear();
  }
  fclose(file);
  for (auto [linux, llvm] : also)
    if (features.count(linux))
      features.insert(llvm);
  return features;
}

} // namespace

std::string missingFeature(const char *list) {
  static const std::set<std::string> have = readFeatures();
  std::string word;
  for (const char *p = list;; ++p) {
    if (*p && *p != ',') {
      word += *p;
      continue;
    }
    if (!word.empty() && !have.count(plain(word)))
      return word;
    word.clear();
    if (!*p)
      return "";
  }
}

} // namespace mpt::rt
