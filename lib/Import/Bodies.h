// SPDX-License-Identifier: Apache-2.0
// Subgraphs of control flow, converted in the place of their node.
#ifndef MPT_LIB_IMPORT_BODIES_H
#define MPT_LIB_IMPORT_BODIES_H

#include "Converter.h"

namespace mpt {

/// A value of a subgraph: a tensor, or a sequence of known length.
struct Carried {
  mlir::Value tensor;
  std::optional<llvm::SmallVector<mlir::Value>> sequence;
};

/// A node with subgraphs, while its bodies are converted in its place.
class Body {
public:
  explicit Body(Binder &b) : b(b) {}

  /// The subgraph `name`, or the first one; null when there is none.
  mlir::Block *block(llvm::StringRef name);
  /// Operand `i` of the node.
  Carried operand(unsigned i);
  /// One copy of the subgraph with these arguments; its results. They count where the boolean scalar `taken` holds, or
  /// everywhere without one.
  llvm::FailureOr<llvm::SmallVector<Carried>> inlined(mlir::Block &block, llvm::ArrayRef<Carried> arguments,
                                                      mlir::Value taken = {});
  /// `value` becomes result `i` of the node.
  llvm::LogicalResult give(unsigned i, const Carried &value);
  /// `yes` where the boolean scalar `condition` holds, else `no`. Both have been computed.
  llvm::FailureOr<Carried> chosen(mlir::Value condition, const Carried &yes, const Carried &no);
  /// The value of a constant boolean or integer; nothing for others.
  static std::optional<int64_t> constant(mlir::Value value);

private:
  Binder &b;
};

/// Parts of one scan output, in the order of the steps, joined along a new dimension `axis`.
llvm::FailureOr<mlir::Value> stacked(Binder &b, llvm::ArrayRef<mlir::Value> parts, int64_t axis, bool reverse);

} // namespace mpt

#endif // MPT_LIB_IMPORT_BODIES_H
