// SPDX-License-Identifier: Apache-2.0
// Checkpoints as ONNX Runtime Training 1.19 reads them: a flatbuffer of parameters and of the optimizer's state.
// Tables and fields: onnxruntime/core/flatbuffers/schema, ort_training_checkpoint.fbs and ort.fbs.
#include "core/AtomicFile.h"
#include "core/Convert.h"
#include "core/Error.h"
#include "core/Trainer.h"
#include "core/Types.h"

#include <flatbuffers/flatbuffers.h>

#include <cstring>

using namespace mpt::rt;

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
struct Table {}; ///< the target of a table's offset

/// Field numbers of the schemas' tables.
namespace slot {
constexpr unsigned version = 0, moduleState = 1, groups = 2;        // Checkpoint
constexpr unsigned trained = 0, frozen = 1;                         // ModuleState
constexpr unsigned groupName = 0, step = 1, rate = 2, states = 3;   // OptimizerGroup
constexpr unsigned parameter = 0, moments = 1;                      // ParameterOptimizerState
constexpr unsigned tensorName = 0, dims = 2, type = 3, rawData = 4; // Tensor
} // namespace slot

constexpr int32_t formatVersion = 2; // that 1.19 writes and checks
/// Offsets of a flatbuffer are 31 bits; room for names and tables beside the tensors.
constexpr int64_t mostBytes = (int64_t(1) << 31) - (int64_t(1) << 24);

flatbuffers::voffset_t field(unsigned slot) { return flatbuffers::FieldIndexToOffset(slot); }

/// Collects tensors of a trainer's state. Reading one that ranks divide is collective: all ranks make the same calls.
class CheckpointWriter {
public:
  CheckpointWriter(mpt_trainer &trainer, bool withOptimizer) : trainer(trainer), withOptimizer(withOptimizer) {}

  mpt_status collect();
  /// The finished file, which lives as long as the writer.
  FilePart finish();

private:
  const mpt_module_desc &model() const { return *trainer.model->desc; }
  mpt_status checkSlots() const;
  mpt_status checkSize() const;
  /// A state tensor under another name: FP32 where it is narrower, from the master where there is one.
  mpt_status addTensor(int64_t i, const std::string &name, std::vector<Offset<Table>> &to);
  mpt_status addMoments(int64_t parameter);
  mpt_status readStep();

  mpt_trainer &trainer;
  const bool withOptimizer;
  FlatBufferBuilder builder{1 << 16};
  std::vector<Offset<Table>> trained, frozen, states;
  int64_t steps = 0;
};

bool isWidened(int64_t dtype) { return isFloating(dtype) && sizeOf(dtype) < sizeOf(MPT_FLOAT32); }

/// The optimizer states of Adam and AdamW, in the order in which ONNX Runtime numbers its own.
constexpr const char *momentNames[] = {".moment1", ".moment2"};

mpt_status CheckpointWriter::checkSlots() const {
  for (int64_t i = 0; i < model().num_state; ++i) {
    const mpt_tensor_desc &t = model().state[i];
    if (t.role != MPT_ROLE_SLOT)
      continue;
    const std::string of = t.of;
    if (t.name != of + momentNames[0] && t.name != of + momentNames[1])
      return fail(
          MPT_INCOMPATIBLE,
          "'%s': expected moments of Adam or AdamW, the optimizer whose state a checkpoint of ONNX Runtime has; "
          "save without the optimizer's state, or by mpt_trainer_save",
          t.name);
  }
  return MPT_OK;
}

mpt_status CheckpointWriter::checkSize() const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < model().num_state; ++i) {
    const mpt_tensor_desc &t = trainer.shards.whole(i);
    bool written = t.role == MPT_ROLE_PARAMETER || t.role == MPT_ROLE_FROZEN || t.role == MPT_ROLE_STATISTIC ||
                   (withOptimizer && t.role == MPT_ROLE_SLOT);
    if (written)
      bytes += isWidened(t.dtype) ? elementsOf(t) * sizeOf(MPT_FLOAT32) : t.bytes;
  }
  if (bytes > mostBytes)
    return fail(MPT_INCOMPATIBLE,
                "expected at most %lld bytes of tensors in a checkpoint of ONNX Runtime, got %lld; save by "
                "mpt_trainer_save, which has no limit",
                static_cast<long long>(mostBytes), static_cast<long long>(bytes));
  return MPT_OK;
}

mpt_status CheckpointWriter::addTensor(int64_t i, const std::string &name, std::vector<Offset<Table>> &to) {
  const mpt_tensor_desc &t = trainer.shards.whole(i);
  const bool widened = isWidened(t.dtype);
  const int64_t count = elementsOf(t), bytes = widened ? count * sizeOf(MPT_FLOAT32) : t.bytes;
  uint8_t *raw = nullptr;
  builder.ForceVectorAlignment(static_cast<size_t>(bytes), 1, 8); // before the length, which stands in front
  auto data = builder.CreateUninitializedVector(static_cast<size_t>(bytes), 1, &raw);
  mpt_status status = widened ? mpt_trainer_get(&trainer, t.name, reinterpret_cast<float *>(raw), count)
                              : mpt_trainer_read(&trainer, i, raw, bytes);
  if (status)
    return status;
  auto dims = builder.CreateVector(t.shape, static_cast<size_t>(t.rank));
  auto called = builder.CreateString(name);
  auto start = builder.StartTable();
  builder.AddOffset(field(slot::tensorName), called);
  builder.AddOffset(field(slot::dims), dims);
  builder.AddElement<int32_t>(field(slot::type), static_cast<int32_t>(widened ? MPT_FLOAT32 : t.dtype), 0);
  builder.AddOffset(field(slot::rawData), Offset<Table>(data));
  to.push_back(builder.EndTable(start));
  return MPT_OK;
}

mpt_status CheckpointWriter::addMoments(int64_t parameter) {
  std::vector<Offset<Table>> moments;
  const std::string name = model().state[parameter].name;
  for (size_t k = 0; k < std::size(momentNames); ++k)
    if (auto found = trainer.index.find(name + momentNames[k]); found != trainer.index.end())
      if (mpt_status status = addTensor(found->second, "momentum" + std::to_string(k), moments))
        return status;
  auto list = builder.CreateVector(moments);
  auto called = builder.CreateString(name);
  auto start = builder.StartTable();
  builder.AddOffset(field(slot::parameter), called);
  builder.AddOffset(field(slot::moments), list);
  states.push_back(builder.EndTable(start));
  return MPT_OK;
}

mpt_status CheckpointWriter::readStep() {
  for (int64_t i = 0; i < model().num_state; ++i)
    if (const mpt_tensor_desc &t = model().state[i]; t.role == MPT_ROLE_COUNTER && t.dtype == MPT_INT64)
      return mpt_trainer_read(&trainer, i, &steps, sizeof steps);
  return MPT_OK; // an optimizer that counts no steps
}

mpt_status CheckpointWriter::collect() {
  if (mpt_status status = withOptimizer ? checkSlots() : MPT_OK)
    return status;
  if (mpt_status status = checkSize())
    return status;
  for (int64_t i = 0; i < model().num_state; ++i) {
    const mpt_tensor_desc &t = model().state[i];
    mpt_status status = MPT_OK;
    if (t.role == MPT_ROLE_PARAMETER)
      status = addTensor(i, t.name, trained);
    else if (t.role == MPT_ROLE_FROZEN || t.role == MPT_ROLE_STATISTIC)
      status = addTensor(i, t.name, frozen);
    if (!status && withOptimizer && t.role == MPT_ROLE_PARAMETER)
      status = addMoments(i);
    if (status)
      return status;
  }
  return withOptimizer ? readStep() : MPT_OK;
}

FilePart CheckpointWriter::finish() {
  auto trainedList = builder.CreateVector(trained), frozenList = builder.CreateVector(frozen);
  auto start = builder.StartTable();
  builder.AddOffset(field(slot::trained), trainedList);
  builder.AddOffset(field(slot::frozen), frozenList);
  Offset<Table> module(builder.EndTable(start));
  Offset<flatbuffers::Vector<Offset<Table>>> groups;
  if (withOptimizer) {
    auto stateList = builder.CreateVector(states);
    auto name = builder.CreateString("group0"); // the one group of ONNX Runtime's own optimizers
    double rate = 1e-3;
    if (mpt_trainer_learning_rate(&trainer, &rate) != MPT_OK)
      rate = 1e-3; // ONNX Runtime's initial rate
    start = builder.StartTable();
    builder.AddElement<int64_t>(field(slot::step), steps, 0);
    builder.AddOffset(field(slot::groupName), name);
    builder.AddElement<float>(field(slot::rate), static_cast<float>(rate), 0);
    builder.AddOffset(field(slot::states), stateList);
    groups = builder.CreateVector(std::vector<Offset<Table>>{builder.EndTable(start)});
  }
  start = builder.StartTable();
  builder.AddElement<int32_t>(field(slot::version), formatVersion, 0);
  builder.AddOffset(field(slot::moduleState), module);
  if (withOptimizer)
    builder.AddOffset(field(slot::groups), groups);
  builder.Finish(Offset<Table>(builder.EndTable(start)), "ODTC");
  return {builder.GetBufferPointer(), static_cast<int64_t>(builder.GetSize())};
}

} // namespace

extern "C" mpt_status mpt_trainer_save_onnxruntime(mpt_trainer *trainer, const char *path,
                                                   int32_t include_optimizer_state) {
  if (!trainer || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a path, got NULL");
  return guarded([&] {
    CheckpointWriter writer(*trainer, include_optimizer_state != 0);
    const bool first = !trainer->replicas || trainer->replicas->isFirst();
    mpt_status status = first || trainer->shards.any() ? writer.collect() : MPT_OK;
    if (!status && first)
      status = writeAtomically(path, {writer.finish()});
    return trainer->replicas ? trainer->replicas->followFirst(status) : status;
  });
}
