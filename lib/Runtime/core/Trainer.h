// One trainer: its state block, scratch, results and call-site caches.
#ifndef MPT_RUNTIME_CORE_TRAINER_H
#define MPT_RUNTIME_CORE_TRAINER_H

#include "core/Context.h"
#include "core/Model.h"
#include "core/Profile.h"

#include <map>

namespace mpt::rt {

/// Zeroed memory straight from the system: untouched pages cost nothing, large blocks use large pages.
class Block {
  void *mapping = nullptr;
  size_t mapped = 0;
  uint8_t *start = nullptr;
  int64_t length = 0;

public:
  Block() = default;
  Block(const Block &) = delete;
  ~Block();
  /// Drops the old contents. False when there is no memory.
  bool allocate(int64_t bytes);
  uint8_t *data() const { return start; }
  int64_t bytes() const { return length; }
};

/// What a function of the model needs between calls.
struct FunctionState {
  Context context;
  std::unique_ptr<Profile> profile; // null unless asked for
  Block outputs;
  std::vector<void *> outputPointers;
  std::vector<const void *> inputPointers;
  bool ran = false;
};

} // namespace mpt::rt

struct mpt_trainer {
  mpt_trainer() = default;
  ~mpt_trainer();
  std::shared_ptr<mpt::rt::Model> model;
  int threads = 1;
  double learningRate = 0;
  bool hasLearningRate = false;
  mpt::rt::Block state, arena;
  mpt::rt::Scratch scratch;                      // of library calls
  mpt::rt::Scratch staging;                      // unaligned inputs
  std::vector<mpt::rt::FunctionState> functions; // as in the module's table
  std::map<std::string, int64_t> index;          // state tensors by name
  std::map<std::string, int64_t> masters;        // parameter name to its master

  const mpt_tensor_desc &tensor(int64_t i) const { return model->desc->state[i]; }
  void *at(int64_t i) const { return state.data() + tensor(i).offset; }
  /// Initial values from a weights file, zero for what training itself creates.
  mpt_status initialize(const char *weights, bool setSeed, uint64_t seed);
};

#endif
