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

/// Bytes of one object file.
using Object = llvm::SmallVector<char, 0>;

/// The processor that code is generated for, as users name it.
struct Processor {
  std::string triple;   ///< as aarch64-linux-gnu; empty: this machine's
  std::string cpu;      ///< as LLVM's -mcpu, "native" for this machine's; empty: native, or any of another architecture
  std::string features; ///< as LLVM's -mattr: "+bf16,-sve"

  /// The folder of runtime libraries for its architecture, where that is not this machine's: "aarch64-linux-gnu".
  std::string otherArchitecture() const;
};

/// Whether code can be generated for a triple.
bool isKnownTriple(llvm::StringRef triple);

struct Machine {
  std::unique_ptr<llvm::TargetMachine> target;
  std::string cpu;      ///< resolved name
  std::string features; ///< comma-separated features, among the ones libmpt_rt knows, that generated code may use

  static llvm::Expected<Machine> create(const Processor &processor);
  /// Whether the processor has a feature of LLVM's such as "avx512bf16"; false for those of other architectures.
  bool has(llvm::StringRef feature) const;
  /// Sets triple and data layout, and the attributes of every function that has a body.
  void adopt(llvm::Module &module) const;
  /// Optimizes (-O3) and generates an object file.
  llvm::Error compile(llvm::Module &module, llvm::SmallVectorImpl<char> &object) const;
};

} // namespace mpt::target

#endif // MPT_TARGET_MACHINE_H
