// SPDX-License-Identifier: Apache-2.0
// A fusion of many tensors of different sizes that are treated alike, such as the updates of all parameters.
#ifndef MPT_LIB_LOWERING_GPU_BUNDLE_H
#define MPT_LIB_LOWERING_GPU_BUNDLE_H

#include "mpt/Lowering/GPU/KernelBuilder.h"

namespace mpt {

/// The ops of one tensor, and its operands and results in the order in which the ops name them.
struct BundleMember {
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SmallVector<unsigned> inputs, outputs;
  int64_t count = 0, start = 0, blocks = 0; ///< elements; number of the first block and how many there are
};

/// The members, and the ops of the first of them on one dimension as long as the longest.
class Bundle {
public:
  static constexpr int64_t kThreads = 256; ///< of a block

  /// The bundle that `kernel` is, of sums or of elementwise arithmetic; nothing, with `reason` set, where it is none.
  static std::optional<Bundle> find(GpuKernelBuilder &kernel, bool sums, llvm::StringRef &reason);

  mlir::Block &body() { return flat->getRegion(0).front(); }
  FusionOp fusion() { return llvm::cast<FusionOp>(*flat); }
  bool isFull(mlir::MemRefType type) const { return type.getNumElements() == longest; }
  /// Gives each member its blocks of `span` elements. Returns their number.
  int64_t share(int64_t span);
  /// A tree of branches over `block`: the memory of arguments [first, last) as `flat` wants it, then `numbers(member)`.
  /// `startOf` says where a member's blocks begin.
  llvm::SmallVector<mlir::Value> choose(ElementEmitter &e, mlir::Value block, mlir::ValueRange arguments, size_t first,
                                        size_t last, llvm::function_ref<int64_t(const BundleMember &)> startOf,
                                        llvm::function_ref<llvm::SmallVector<int64_t>(const BundleMember &)> numbers);

  llvm::SmallVector<BundleMember> members;
  llvm::SmallVector<mlir::MemRefType> inputs, outputs; ///< of `flat`
  llvm::SmallVector<int64_t> alignments;
  int64_t longest = 0;

private:
  /// Why `kernel` cannot treat its members alike; empty where it can.
  llvm::StringRef compare(GpuKernelBuilder &kernel, bool sums);
  void flatten(GpuKernelBuilder &kernel, bool sums);
  void cloneFlat(mlir::OpBuilder &inner, mlir::Operation *op, mlir::IRMapping &mapping);
  unsigned argument(const BundleMember &member, size_t k) const {
    return k < inputs.size() ? member.inputs[k] : numInputs + member.outputs[k - inputs.size()];
  }

  size_t numInputs = 0; ///< of the kernel
  mlir::OwningOpRef<mlir::Operation *> flat;
};

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_BUNDLE_H
