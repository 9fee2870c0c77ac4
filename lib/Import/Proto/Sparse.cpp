// SPDX-License-Identifier: Apache-2.0
// Sparse tensors become dense ones, within a small multiple of their bytes in the file.
#include "Proto.h"
#include "Sites.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"

#include <cstring>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
/// A dense form has this many bytes for each of the sparse one, or is one of the first ones, together so large.
constexpr int64_t growth = 16, allowance = int64_t(8) << 20;

class Densifier {
public:
  explicit Densifier(MLIRContext *context) : context(context) {}
  /// The dense form of `sparse`; diagnostics are at `name`.
  LogicalResult make(SparseTensorProto &sparse, StringRef name, TensorProto &dense);
  LogicalResult visitInitializers(GraphProto &graph);
  LogicalResult visitConstants(google::protobuf::RepeatedPtrField<NodeProto> &nodes);

private:
  FailureOr<SmallVector<int64_t>> positionsOf(const SparseTensorProto &sparse, ArrayRef<int64_t> shape, int64_t count,
                                              Location loc);

  MLIRContext *context;
  int64_t left = allowance;
};
} // namespace

/// Where each value lies among all elements. The standard wants them in ascending order.
FailureOr<SmallVector<int64_t>> Densifier::positionsOf(const SparseTensorProto &sparse, ArrayRef<int64_t> shape,
                                                       int64_t count, Location loc) {
  const TensorProto &indices = sparse.indices();
  auto rank = static_cast<int64_t>(shape.size());
  SmallVector<int64_t> extents(indices.dims().begin(), indices.dims().end());
  bool isFlat = extents.size() == 1;
  if (indices.data_type() != TensorProto::INT64 || extents.empty() || extents.size() > 2 || extents[0] != count ||
      (!isFlat && extents[1] != rank))
    return emitError(loc) << "expected int64 indices [" << count << "] or [" << count << ", " << rank
                          << "] of a sparse tensor, got ONNX data type " << indices.data_type() << " [" << extents
                          << "]";
  if (indices.data_location() == TensorProto::EXTERNAL)
    return emitError(loc) << "expected a sparse tensor inside the file, got external data; convert it to a dense "
                             "initializer";
  if (failed(proto::checkTensor(indices, loc)))
    return failure();
  std::string bytes = proto::rawBytes(indices, context);
  int64_t total = 1, before = -1;
  for (int64_t extent : shape)
    total *= extent;
  SmallVector<int64_t> positions;
  positions.reserve(count);
  const int64_t columns = isFlat ? 1 : rank;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (int64_t axis = 0; axis < columns; ++axis) {
      int64_t extent = isFlat ? total : shape[axis], index = 0;
      std::memcpy(&index, bytes.data() + (i * columns + axis) * sizeof(index), sizeof(index));
      if (index < 0 || index >= extent)
        return emitError(loc) << "expected indices of a sparse tensor below " << extent << ", got " << index;
      at = at * extent + index;
    }
    if (at <= before)
      return emitError(loc) << "expected indices of a sparse tensor in ascending order, each once, got element " << at
                            << " after " << before;
    positions.push_back(before = at);
  }
  return positions;
}

LogicalResult Densifier::make(SparseTensorProto &sparse, StringRef name, TensorProto &dense) {
  Location loc = proto::namedLoc(context, name);
  TensorProto &values = *sparse.mutable_values();
  if (values.data_location() == TensorProto::EXTERNAL)
    return emitError(loc) << "expected a sparse tensor inside the file, got external data; convert it to a dense "
                             "initializer";
  dense.set_name(name.str());
  proto::copySite(values, dense);
  dense.set_data_type(values.data_type());
  *dense.mutable_dims() = sparse.dims();
  FailureOr<int64_t> bytes = proto::byteSize(dense, loc);
  if (failed(bytes) || failed(proto::checkTensor(values, loc)))
    return failure();
  if (values.dims_size() != 1)
    return emitError(loc) << "expected a list of values of a sparse tensor, got rank " << values.dims_size();
  auto own = static_cast<int64_t>(sparse.ByteSizeLong());
  int64_t excess = std::max<int64_t>(*bytes - growth * own, 0);
  if (excess > left)
    return emitError(loc) << "expected a sparse tensor that takes at most " << growth
                          << " times its bytes when it is dense, got " << *bytes << " bytes for " << own
                          << "; store it as a dense initializer";
  left -= excess;
  int64_t count = values.dims(0);
  SmallVector<int64_t> shape(sparse.dims().begin(), sparse.dims().end());
  FailureOr<SmallVector<int64_t>> positions = positionsOf(sparse, shape, count, loc);
  if (failed(positions))
    return failure();
  std::string packed = proto::rawBytes(values, context);
  int64_t width = count ? static_cast<int64_t>(packed.size()) / count : 0;
  std::string &raw = *dense.mutable_raw_data();
  raw.assign(*bytes, '\0');
  for (auto [i, position] : llvm::enumerate(*positions))
    raw.replace(position * width, width, packed, i * width, width);
  return success();
}

LogicalResult Densifier::visitInitializers(GraphProto &graph) {
  for (SparseTensorProto &sparse : *graph.mutable_sparse_initializer()) {
    std::string name = sparse.values().name();
    if (failed(make(sparse, name, *graph.add_initializer())))
      return failure();
  }
  graph.clear_sparse_initializer();
  for (NodeProto &node : *graph.mutable_node())
    for (AttributeProto &attr : *node.mutable_attribute())
      if (attr.has_g() && failed(visitInitializers(*attr.mutable_g())))
        return failure();
  return success();
}

LogicalResult Densifier::visitConstants(google::protobuf::RepeatedPtrField<NodeProto> &nodes) {
  for (NodeProto &node : nodes)
    for (AttributeProto &attr : *node.mutable_attribute()) {
      if (attr.has_g() && failed(visitConstants(*attr.mutable_g()->mutable_node())))
        return failure();
      if (node.op_type() != "Constant" || attr.name() != "sparse_value" || !attr.has_sparse_tensor())
        continue;
      AttributeProto dense;
      dense.set_name("value");
      dense.set_type(AttributeProto::TENSOR);
      if (failed(make(*attr.mutable_sparse_tensor(), proto::nodeName(node), *dense.mutable_t())))
        return failure();
      attr.Swap(&dense);
    }
  return success();
}

LogicalResult proto::densifyInitializers(ModelProto &model, MLIRContext *context) {
  Densifier densifier(context);
  if (failed(densifier.visitInitializers(*model.mutable_graph())))
    return failure();
  for (TrainingInfoProto &info : *model.mutable_training_info())
    if ((info.has_algorithm() && failed(densifier.visitInitializers(*info.mutable_algorithm()))) ||
        (info.has_initialization() && failed(densifier.visitInitializers(*info.mutable_initialization()))))
      return failure();
  return success();
}

LogicalResult proto::densifyConstants(ModelProto &model, MLIRContext *context) {
  Densifier densifier(context);
  for (FunctionProto &function : *model.mutable_functions())
    if (failed(densifier.visitConstants(*function.mutable_node())))
      return failure();
  return densifier.visitConstants(*model.mutable_graph()->mutable_node());
}
