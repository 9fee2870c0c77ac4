// SPDX-License-Identifier: Apache-2.0
// A graph by its values: the nodes that compute and read them, and the numbers that they hold.
#ifndef MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H
#define MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H

#include "onnx/onnx_pb.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

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
  /// The node that computes the value; null where it is no result.
  const ::onnx::NodeProto *nodeOf(llvm::StringRef name) const { return producers.lookup(name); }
  /// True where the value is computed element by element, as updates are.
  bool isArithmetic(llvm::StringRef name) const;
  /// The nodes that read the value.
  llvm::ArrayRef<const ::onnx::NodeProto *> readersOf(llvm::StringRef name) const;
  /// A number that the caller feeds in.
  bool isRate(llvm::StringRef name) const;
  bool defines(llvm::StringRef name) const { return producers.contains(name); }
  const ::onnx::TensorProto *tensor(llvm::StringRef name) const { return tensors.lookup(name); }
  /// The values that nodes compute and the graph holds.
  llvm::SmallVector<llvm::StringRef> names() const;
  /// The number that a scalar of floats holds.
  std::optional<double> number(llvm::StringRef name) const;

private:
  llvm::StringMap<const ::onnx::NodeProto *> producers;
  llvm::StringMap<std::vector<const ::onnx::NodeProto *>> readers;
  llvm::StringMap<const ::onnx::TensorProto *> tensors;
  llvm::StringMap<const ::onnx::ValueInfoProto *> inputs;
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_GRAPHVALUES_H
