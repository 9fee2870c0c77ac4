// SPDX-License-Identifier: Apache-2.0
// Defaults of targets, and their registry.
#include "mpt/Target/Target.h"

using namespace mpt::target;

Target::~Target() = default;

std::optional<std::string> Target::set(llvm::StringRef, llvm::StringRef) { return "another flag"; }
void Target::addPasses(llvm::StringRef, mlir::OpPassManager &) const {}
void Target::registerDialects(mlir::DialectRegistry &) const {}

static llvm::SmallVectorImpl<TargetFactory> &factories() {
  static llvm::SmallVector<TargetFactory> registered;
  return registered;
}

void mpt::target::registerTarget(TargetFactory factory) {
  if (!llvm::is_contained(factories(), factory))
    factories().push_back(factory);
}

llvm::SmallVector<std::unique_ptr<Target>> mpt::target::allTargets() {
  return llvm::map_to_vector(factories(), [](TargetFactory factory) { return factory(); });
}

std::unique_ptr<Target> mpt::target::createTarget(llvm::StringRef name) {
  for (std::unique_ptr<Target> &target : allTargets())
    if (name.empty() || target->name() == name)
      return std::move(target);
  return nullptr;
}

std::unique_ptr<Target> mpt::target::createTarget(llvm::StringRef name, llvm::ArrayRef<std::string> flags,
                                                  llvm::function_ref<mlir::InFlightDiagnostic()> emitError) {
  std::unique_ptr<Target> made = createTarget(name);
  if (!made) {
    emitError() << "expected the name of a target, got '" << name << "'";
    return nullptr;
  }
  for (llvm::StringRef word : flags) {
    auto [flag, value] = word.split('=');
    auto isIt = [flag = flag](const TargetFlag &known) { return known.name == flag; };
    std::optional<std::string> expected =
        llvm::any_of(made->flags(), isIt) ? made->set(flag, value) : "a flag of target " + made->name().str();
    if (expected) {
      emitError() << "expected " << *expected << ", got '" << word << "'";
      return nullptr;
    }
  }
  return made;
}
