// SPDX-License-Identifier: Apache-2.0
// A graph by its values: what computes them, what they hold, and the gradients that moments average.
#ifndef MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H
#define MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H

#include "onnx/onnx_pb.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <optional>
#include <string>
#include <vector>

namespace mpt::proto {

/// One element of a float type.
bool isScalarFloat(const ::onnx::ValueInfoProto &info);

/// The graph as its nodes' results, through Identity.
class GraphValues {
public:
  explicit GraphValues(const ::onnx::GraphProto &graph);
  llvm::StringRef origin(llvm::StringRef name) const;
  /// The node of ai.onnx that computes the value, of any type, or null.
  const ::onnx::NodeProto *producer(llvm::StringRef name) const;
  const ::onnx::NodeProto *producer(llvm::StringRef name, llvm::StringRef opType) const;
  /// The nodes that read the value.
  llvm::ArrayRef<const ::onnx::NodeProto *> readersOf(llvm::StringRef name) const;
  /// A number that the caller feeds in.
  bool isRate(llvm::StringRef name) const;
  bool defines(llvm::StringRef name) const { return producers.contains(name); }
  const ::onnx::TensorProto *tensor(llvm::StringRef name) const { return tensors.lookup(name); }
  /// The number that a scalar of floats holds.
  std::optional<double> number(llvm::StringRef name) const;

private:
  llvm::StringMap<const ::onnx::NodeProto *> producers;
  llvm::StringMap<std::vector<const ::onnx::NodeProto *>> readers;
  llvm::StringMap<const ::onnx::TensorProto *> tensors;
  llvm::StringMap<const ::onnx::ValueInfoProto *> inputs;
};

/// Computed values that the new values of all states (of two or more that have computed factors) are multiplied with on
/// the way from their gradients: the factor of clipping by the norm of all gradients.
llvm::StringSet<> sharedFactors(const GraphValues &values, const llvm::StringMap<std::string> &next);

/// (value, parameter) for each parameter whose new value is computed from the new value of another state that is a
/// running average of a gradient or of its square, as in momentum, Adam and RMSProp: the value is that gradient,
/// without weight decay. `next` has the state of each new value.
std::vector<std::pair<std::string, std::string>> gradientsOfMoments(const GraphValues &values,
                                                                    const llvm::StringMap<std::string> &next);

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H
