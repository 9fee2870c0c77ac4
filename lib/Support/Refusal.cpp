// SPDX-License-Identifier: Apache-2.0
// Why rewrites refused, printed for the passes that --debug-only names.
#include "mpt/Support/Refusal.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;

/// A node's name alone, as errors give it; else the location.
static void printReason(const char *flag, const Diagnostic &reason) {
  llvm::dbgs() << flag << ": ";
  if (auto name = dyn_cast<NameLoc>(reason.getLocation()))
    llvm::dbgs() << name.getName().getValue();
  else if (auto file = dyn_cast<FileLineColLoc>(reason.getLocation()))
    llvm::dbgs() << file.getFilename().getValue() << ":" << file.getLine() << ":" << file.getColumn();
  else
    llvm::dbgs() << reason.getLocation();
  llvm::dbgs() << ": " << reason << "\n";
}

static bool isShown(const char *flag) {
  (void)flag;
#ifndef NDEBUG
  return llvm::DebugFlag && llvm::isCurrentDebugType(flag);
#else
  return false;
#endif
}

Refusal::Refusal(const char *flag, Location loc) : flag(flag) {
  if (isShown(flag))
    reason.emplace(loc, DiagnosticSeverity::Remark);
}

Refusal::~Refusal() {
  if (reason)
    printReason(flag, *reason);
}

void RefusalListener::notifyMatchFailure(Location loc, function_ref<void(Diagnostic &)> explain) {
  if (!isShown(flag))
    return;
  Diagnostic reason(loc, DiagnosticSeverity::Remark);
  explain(reason);
  printReason(flag, reason);
}

void mpt::showRefusals(StringRef flags) {
  (void)flags;
#ifndef NDEBUG
  std::vector<std::string> names;
  for (StringRef flag : llvm::split(flags, ','))
    names.push_back(flag.str());
  SmallVector<const char *> types;
  for (const std::string &name : names)
    types.push_back(name.c_str());
  llvm::DebugFlag = true;
  llvm::setCurrentDebugTypes(types.data(), types.size());
#endif
}
