// SPDX-License-Identifier: Apache-2.0
// Checkpoints of ONNX Runtime Training: flatbuffers, read with every offset checked against the file.
#include "Artifacts.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Endian.h"

using namespace mlir;
using namespace mpt;

namespace {

/// A place in a flatbuffer (flatbuffers.dev, "Internals"): tables begin with the distance back to their vtable, which
/// has the distance of each field; strings and vectors begin with their length. Every read fails beyond the file.
class Flat {
public:
  explicit Flat(StringRef bytes) : bytes(bytes) {}

  template <typename T> std::optional<T> number(uint64_t at) const {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
      return std::nullopt;
    return llvm::support::endian::read<T, llvm::endianness::little>(bytes.data() + at);
  }
  /// What the offset at `at` points to; offsets go forward only, so that no file has cycles.
  std::optional<uint64_t> follow(uint64_t at) const {
    auto distance = number<uint32_t>(at);
    if (!distance || *distance == 0 || *distance >= bytes.size() - at)
      return std::nullopt;
    return at + *distance;
  }
  /// The place of a table's field; nothing where it has its default or the table is broken.
  std::optional<uint64_t> field(uint64_t table, unsigned slot) const {
    auto back = number<int32_t>(table);
    int64_t vtable = back ? static_cast<int64_t>(table) - *back : -1;
    if (vtable < 0)
      return std::nullopt;
    auto size = number<uint16_t>(vtable);
    uint64_t entry = 4 + 2 * uint64_t(slot);
    if (!size || *size < entry + 2)
      return std::nullopt;
    auto distance = number<uint16_t>(vtable + entry);
    if (!distance || *distance == 0)
      return std::nullopt;
    return table + *distance;
  }
  std::optional<uint64_t> child(uint64_t table, unsigned slot) const {
    auto at = field(table, slot);
    return at ? follow(*at) : std::nullopt;
  }
  /// The elements of a vector as bytes.
  std::optional<StringRef> vector(uint64_t table, unsigned slot, uint64_t width) const {
    auto at = child(table, slot);
    auto count = at ? number<uint32_t>(*at) : std::nullopt;
    if (!count || *count > (bytes.size() - *at - 4) / width)
      return std::nullopt;
    return bytes.substr(*at + 4, *count * width);
  }
  uint64_t placeOf(StringRef part) const { return part.data() - bytes.data(); }

private:
  StringRef bytes;
};

/// Field numbers of the schemas' tables.
namespace slot {
constexpr unsigned moduleState = 1;              // Checkpoint
constexpr unsigned trained = 0, frozen = 1;      // ModuleState
constexpr unsigned name = 0, dims = 2, type = 3, // Tensor
    raw = 4, external = 6;
} // namespace slot

LogicalResult readTensor(const Flat &flat, uint64_t table, ::onnx::TensorProto &tensor, Location loc) {
  auto name = flat.vector(table, slot::name, 1), dims = flat.vector(table, slot::dims, 8),
       raw = flat.vector(table, slot::raw, 1);
  auto typeAt = flat.field(table, slot::type);
  auto type = typeAt ? flat.number<int32_t>(*typeAt) : std::nullopt;
  if (!name || name->empty() || !type)
    return emitError(loc) << "expected a name and a type for every tensor of the checkpoint, got none";
  if (!raw)
    return emitError(loc) << "expected the values of tensor '" << *name << "' in the checkpoint"
                          << (flat.field(table, slot::external) ? ", got a reference to another file" : ", got none");
  tensor.set_name(name->str());
  tensor.set_data_type(*type);
  for (uint64_t i = 0; dims && i < dims->size(); i += 8)
    tensor.add_dims(llvm::support::endian::read<int64_t, llvm::endianness::little>(dims->data() + i));
  tensor.set_raw_data(raw->str());
  return proto::checkTensor(tensor, proto::namedLoc(loc.getContext(), *name));
}

LogicalResult readTensors(const Flat &flat, uint64_t table, unsigned slot, std::vector<::onnx::TensorProto> &tensors,
                          Location loc) {
  std::optional<StringRef> list = flat.vector(table, slot, 4);
  for (uint64_t i = 0; list && i < list->size(); i += 4) {
    std::optional<uint64_t> at = flat.follow(flat.placeOf(*list) + i);
    if (!at)
      return emitError(loc) << "expected tensors within the checkpoint, got an offset beyond its end";
    if (failed(readTensor(flat, *at, tensors.emplace_back(), loc)))
      return failure();
  }
  return success();
}

} // namespace

FailureOr<proto::Checkpoint> proto::readCheckpoint(StringRef bytes, Location loc) {
  Checkpoint checkpoint;
  if (bytes.substr(4, 4) != "ODTC") {
    ::onnx::ModelProto model;
    if (failed(parseModel(bytes, model, loc)))
      return failure();
    for (::onnx::TensorProto &tensor : *model.mutable_graph()->mutable_initializer())
      checkpoint.trained.push_back(std::move(tensor));
    return checkpoint;
  }
  Flat flat(bytes);
  std::optional<uint64_t> root = flat.follow(0), state = root ? flat.child(*root, slot::moduleState) : std::nullopt;
  if (!state)
    return emitError(loc) << "expected the state of a module in the checkpoint, got none; the file may be truncated";
  if (failed(readTensors(flat, *state, slot::trained, checkpoint.trained, loc)) ||
      failed(readTensors(flat, *state, slot::frozen, checkpoint.frozen, loc)))
    return failure();
  return checkpoint;
}
