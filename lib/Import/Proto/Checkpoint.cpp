// SPDX-License-Identifier: Apache-2.0
// Checkpoints of ONNX Runtime Training: flatbuffers, read with every offset checked against the file, and before
// version 1.15 folders of protobuf messages.
#include "Artifacts.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include "google/protobuf/io/coded_stream.h"

using namespace mlir;
using namespace mpt;

namespace {

/// A place in a flatbuffer (flatbuffers.dev, "Internals"): tables begin with the distance back to their vtable, which
/// has the distance of each field; strings and vectors begin with their length. Every read fails beyond the file.
/// Offsets may lead to one place again and again, and to read it each time would take any amount of memory: all
/// vectors together have at most four times the bytes of the file, since writers share strings and nothing else.
class Flat {
public:
  explicit Flat(StringRef bytes) : bytes(bytes), left(4 * bytes.size()) {}

  template <typename T> std::optional<T> number(uint64_t at) const {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
      return std::nullopt;
    return llvm::support::endian::read<T, llvm::endianness::little>(bytes.data() + at);
  }
  /// The place that the offset at `at` points to; offsets go forward only, so that no file has cycles.
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
  std::optional<StringRef> vector(uint64_t table, unsigned slot, uint64_t width) {
    auto at = child(table, slot);
    auto count = at ? number<uint32_t>(*at) : std::nullopt;
    if (!count || *count > (bytes.size() - *at - 4) / width)
      return std::nullopt;
    uint64_t size = *count * width;
    if (isShared |= size + 4 > left; isShared)
      return std::nullopt;
    left -= size + 4;
    return bytes.substr(*at + 4, size);
  }
  /// Fails once vectors had more bytes than they may.
  LogicalResult checkShared(Location loc) const {
    if (!isShared)
      return success();
    return emitError(loc)
           << "expected tensors of the checkpoint that lie apart, got offsets that lead to the same bytes";
  }
  uint64_t placeOf(StringRef part) const { return part.data() - bytes.data(); }

private:
  StringRef bytes;
  uint64_t left; ///< bytes that vectors may still have
  bool isShared = false;
};

/// Field numbers of the schemas' tables.
namespace slot {
constexpr unsigned moduleState = 1, groups = 2;  // Checkpoint
constexpr unsigned trained = 0, frozen = 1;      // ModuleState
constexpr unsigned step = 1, parameters = 3;     // OptimizerGroup
constexpr unsigned parameter = 0, moments = 1;   // ParameterOptimizerState
constexpr unsigned name = 0, dims = 2, type = 3, // Tensor
    raw = 4, external = 6;
} // namespace slot

LogicalResult readTensor(Flat &flat, uint64_t table, ::onnx::TensorProto &tensor, Location loc) {
  auto name = flat.vector(table, slot::name, 1), dims = flat.vector(table, slot::dims, 8),
       raw = flat.vector(table, slot::raw, 1);
  if (failed(flat.checkShared(loc)))
    return failure();
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

/// Places of the tables in a vector of them.
FailureOr<SmallVector<uint64_t>> tablesOf(Flat &flat, uint64_t table, unsigned slot, Location loc) {
  SmallVector<uint64_t> places;
  std::optional<StringRef> list = flat.vector(table, slot, 4);
  if (failed(flat.checkShared(loc)))
    return failure();
  for (uint64_t i = 0; list && i < list->size(); i += 4) {
    std::optional<uint64_t> at = flat.follow(flat.placeOf(*list) + i);
    if (!at)
      return emitError(loc) << "expected tables within the checkpoint, got an offset beyond its end";
    places.push_back(*at);
  }
  return places;
}

LogicalResult readTensors(Flat &flat, uint64_t table, unsigned slot, std::vector<::onnx::TensorProto> &tensors,
                          Location loc) {
  FailureOr<SmallVector<uint64_t>> places = tablesOf(flat, table, slot, loc);
  if (failed(places))
    return failure();
  for (uint64_t at : *places)
    if (failed(readTensor(flat, at, tensors.emplace_back(), loc)))
      return failure();
  return success();
}

LogicalResult readOptimizer(Flat &flat, uint64_t root, std::vector<proto::CheckpointOptimizer> &groups, Location loc) {
  FailureOr<SmallVector<uint64_t>> tables = tablesOf(flat, root, slot::groups, loc);
  if (failed(tables))
    return failure();
  for (uint64_t table : *tables) {
    proto::CheckpointOptimizer &group = groups.emplace_back();
    if (auto at = flat.field(table, slot::step))
      group.step = flat.number<int64_t>(*at).value_or(0);
    FailureOr<SmallVector<uint64_t>> parameters = tablesOf(flat, table, slot::parameters, loc);
    if (failed(parameters))
      return failure();
    for (uint64_t parameter : *parameters) {
      auto &[name, moments] = group.moments.emplace_back();
      name = flat.vector(parameter, slot::parameter, 1).value_or("").str();
      if (failed(flat.checkShared(loc)) || failed(readTensors(flat, parameter, slot::moments, moments, loc)))
        return failure();
      // They lie in the order of a hash table, called momentum0 and momentum1.
      llvm::sort(moments, [](const auto &a, const auto &b) { return a.name() < b.name(); });
    }
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
      failed(readTensors(flat, *state, slot::frozen, checkpoint.frozen, loc)) ||
      failed(readOptimizer(flat, *root, checkpoint.optimizer, loc)))
    return failure();
  return checkpoint;
}

/// Messages behind their number, each behind its size.
static LogicalResult readSequence(StringRef bytes, std::vector<::onnx::TensorProto> &tensors, Location loc) {
  auto broken = [&] {
    return emitError(loc) << "expected a sequence of tensors of ONNX Runtime Training (.pbseq), got bytes that do not "
                             "parse; the file may be truncated";
  };
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t *>(bytes.data()),
                                                static_cast<int>(std::min<uint64_t>(bytes.size(), INT_MAX)));
  uint32_t count, size;
  if (!stream.ReadVarint32(&count))
    return broken();
  for (; count > 0; --count) {
    if (!stream.ReadVarint32(&size))
      return broken();
    auto limit = stream.PushLimit(static_cast<int>(std::min<uint32_t>(size, INT_MAX)));
    ::onnx::TensorProto &tensor = tensors.emplace_back();
    if (!tensor.ParseFromCodedStream(&stream) || stream.BytesUntilLimit() != 0)
      return broken();
    stream.PopLimit(limit);
    if (tensor.data_location() == ::onnx::TensorProto::EXTERNAL)
      return emitError(loc) << "expected the values of tensor '" << tensor.name()
                            << "' in the checkpoint, got a reference to another file";
    if (failed(proto::checkTensor(tensor, proto::namedLoc(loc.getContext(), tensor.name()))))
      return failure();
  }
  return success();
}

FailureOr<proto::Checkpoint> proto::readCheckpointFolder(StringRef folder, Location loc) {
  Checkpoint checkpoint;
  bool any = false, slots = false;
  for (auto [name, tensors] : {std::pair("paramtrain_tensors.pbseq", &checkpoint.trained),
                               std::pair("paramfrozen_tensors.pbseq", &checkpoint.frozen)}) {
    SmallString<256> path(folder);
    llvm::sys::path::append(path, name);
    if (!llvm::sys::fs::exists(path))
      continue;
    any = true;
    auto file = openFile("checkpoint", path, loc);
    if (failed(file) || failed(readSequence((*file)->getBuffer(), *tensors, namedLoc(loc.getContext(), path))))
      return failure();
  }
  if (!any)
    return emitError(loc) << "expected a checkpoint of ONNX Runtime Training, got folder '" << folder
                          << "' without paramtrain_tensors.pbseq, which versions before 1.15 write; name the "
                             "checkpoint file, or an .onnx file whose initializers have the values";
  std::error_code error;
  for (llvm::sys::fs::directory_iterator entry(folder, error), end; entry != end && !error; entry.increment(error))
    slots |= llvm::sys::path::filename(entry->path()).starts_with("optim_");
  if (slots)
    emitWarning(loc) << "the optimizer's state in folder '" << folder
                     << "' is not read, and starts at zero; load and save the checkpoint with ONNX Runtime Training "
                        "1.15 or newer to go on from it";
  return checkpoint;
}
