// SPDX-License-Identifier: Apache-2.0
// The processor that code is generated for, and LLVM's optimizer and code generator for it.
#ifndef MPT_TARGET_MACHINE_H
#define MPT_TARGET_MACHINE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"
#include <memory>
#include <string>

namespace mpt::target {

struct Machine {
  std::unique_ptr<llvm::TargetMachine> target;
  std::string cpu;      ///< resolved name
  std::string features; ///< comma-separated features, among the ones libmpt_rt knows, that generated code may use

  /// `cpu` may be "native".
  static llvm::Expected<Machine> create(llvm::StringRef cpu);
  /// Sets triple and data layout, and the attributes of every function that has a body.
  void adopt(llvm::Module &module) const;
  /// Optimizes (-O3) and generates an object file.
  llvm::Error compile(llvm::Module &module, llvm::SmallVectorImpl<char> &object) const;
};

} // namespace mpt::target

#endif // MPT_TARGET_MACHINE_H
