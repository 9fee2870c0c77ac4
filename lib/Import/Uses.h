// SPDX-License-Identifier: Apache-2.0
// The uses of a tensor of the file, which tell parameters from tables and constants.
#ifndef MPT_LIB_IMPORT_PROTO_USES_H
#define MPT_LIB_IMPORT_PROTO_USES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/StringRef.h"

namespace mpt {

struct TensorUse {
  bool weight = false;       ///< a weight operand
  bool beside = false;       ///< a bias or scale beside the result of one
  bool token = false;        ///< is concatenated with the result of a layer
  bool either = false;       ///< other arithmetic on two values
  bool function = false;     ///< a gate before its sigmoid, or a temperature before clamp and exponential
  bool logarithm = false;    ///< of a scale, before its exponential
  bool statistic = false;    ///< mean or variance of a batch normalization
  bool classes = false;      ///< weights of a loss's classes, which have no gradient
  bool quantizes = false;    ///< scale or zero point
  bool angle = false;        ///< multiplies positions whose sine or cosine is taken
  bool standardizes = false; ///< is subtracted from, or divides, an input of the graph
  bool initialState = false; ///< the state before the first step of a recurrence
  llvm::StringRef reader;    ///< an operator that reads it as data
};

/// How `start` is used, through chains of movements of any length, in and out of subgraphs.
TensorUse usesOf(mlir::Value start);

/// True where nothing but the statistics before a batch normalization is computed from `start`, as exporters of weight
/// standardization do from a copy of the weight.
bool isReadForStatistics(mlir::Value start);

} // namespace mpt

#endif // MPT_LIB_IMPORT_PROTO_USES_H
