// SPDX-License-Identifier: Apache-2.0
// The base of the schedules of all targets: a name, a reason for refusing a kernel, and an order of preference.
#ifndef MPT_LOWERING_NEST_KERNELSCHEDULE_H
#define MPT_LOWERING_NEST_KERNELSCHEDULE_H

#include "mpt/Lowering/Nest/KernelNest.h"

namespace mpt {

/// One object serves one kernel: matching may keep values that emission needs.
class KernelSchedule {
public:
  explicit KernelSchedule(llvm::StringRef name) : name(name) {}
  virtual ~KernelSchedule();

  const llvm::StringRef name;

protected:
  /// Fails, and with --debug-only=lowering-emit-kernels says why: "expected X, got Y".
  mlir::LogicalResult refuse(const KernelNest &kernel, const llvm::Twine &reason) const;
};

/// The first schedule that matches `kernel`. Null where one reported an op without a loop form, and with an error where
/// none matches.
template <typename Schedule, typename Kernel>
std::unique_ptr<Schedule> firstMatch(Kernel &kernel, llvm::ArrayRef<std::unique_ptr<Schedule> (*)()> makers) {
  for (auto make : makers) {
    std::unique_ptr<Schedule> schedule = make();
    if (succeeded(schedule->match(kernel)))
      return schedule;
    if (kernel.hasFailed())
      return nullptr;
  }
  FusionOp fusion = kernel.fusion;
  fusion.emitError() << "expected a schedule that serves this fusion, got none";
  return nullptr;
}

} // namespace mpt

#endif // MPT_LOWERING_NEST_KERNELSCHEDULE_H
