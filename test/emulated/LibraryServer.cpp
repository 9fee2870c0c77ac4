// SPDX-License-Identifier: Apache-2.0
// library_server LIBRARY: a trainer of an emitted library, of which emulated.py asks runs of functions and tensors of
// the state through standard input and output. Under user-mode emulation, the library is another processor's.
//
// Both sides send 64-bit integers, FP64 numbers, texts (length, bytes) and tensors (name, dtype, rank, shape, bytes).
//   request:  0, function, count, tensors   run a function; the answer has its results
//             1, roles                      the state's tensors of these roles (a bit each), as FP32
//   answer:   status, message, loss, skipped, count, tensors
#include "mpt/trainer.hpp"

#include <cstdio>
#include <cstring>

namespace {

template <class T> T get() {
  T value;
  if (fread(&value, sizeof value, 1, stdin) != 1)
    exit(0); // nobody asks any more
  return value;
}

std::string getText() {
  std::string text(static_cast<size_t>(get<int64_t>()), '\0');
  if (!text.empty() && fread(text.data(), text.size(), 1, stdin) != 1)
    exit(1);
  return text;
}

template <class T> void put(T value) { fwrite(&value, sizeof value, 1, stdout); }

void putText(const std::string &text) {
  put<int64_t>(static_cast<int64_t>(text.size()));
  fwrite(text.data(), 1, text.size(), stdout);
}

size_t bytesOf(const mpt::Tensor &tensor) {
  switch (tensor.dtype) {
  case MPT_FLOAT64:
  case MPT_INT64:
  case MPT_UINT64:
    return 8 * tensor.size();
  case MPT_FLOAT32:
  case MPT_INT32:
  case MPT_UINT32:
    return 4 * tensor.size();
  case MPT_FLOAT16:
  case MPT_BFLOAT16:
  case MPT_INT16:
  case MPT_UINT16:
    return 2 * tensor.size();
  default:
    return tensor.size();
  }
}

void putTensor(const mpt::Tensor &tensor) {
  putText(tensor.name);
  put<int64_t>(tensor.dtype);
  put<int64_t>(static_cast<int64_t>(tensor.shape.size()));
  for (int64_t extent : tensor.shape)
    put(extent);
  put<int64_t>(static_cast<int64_t>(bytesOf(tensor)));
  fwrite(tensor.data(), 1, bytesOf(tensor), stdout);
}

void answer(mpt_status status, const std::string &message, const mpt_metrics &metrics,
            const std::vector<mpt::Tensor> &tensors) {
  put<int64_t>(status);
  putText(message);
  put(metrics.loss);
  put<int64_t>(metrics.skipped);
  put<int64_t>(static_cast<int64_t>(tensors.size()));
  for (const mpt::Tensor &tensor : tensors)
    putTensor(tensor);
  fflush(stdout);
}

void run(mpt::Trainer &trainer) {
  std::string function = getText();
  auto count = get<int64_t>();
  mpt::Inputs inputs;
  std::vector<std::string> data(static_cast<size_t>(count));
  for (std::string &bytes : data) {
    std::string name = getText();
    auto dtype = static_cast<mpt_dtype>(get<int64_t>());
    mpt::Shape shape(static_cast<size_t>(get<int64_t>()));
    for (int64_t &extent : shape)
      extent = get<int64_t>();
    bytes = getText();
    inputs.emplace_back(name, dtype, bytes.data(), shape);
  }
  mpt::Outputs results = trainer.run(function, inputs);
  answer(MPT_OK, "", trainer.metrics(function), {results.begin(), results.end()});
}

void sendState(mpt::Trainer &trainer) {
  auto roles = get<int64_t>();
  std::vector<mpt::Tensor> found;
  std::vector<std::vector<float>> values;
  mpt_tensor tensor;
  mpt_role role;
  for (int64_t i = 0; mpt_trainer_state(trainer.handle(), i, &tensor, &role) == MPT_OK; ++i) {
    if (!(roles >> role & 1))
      continue;
    mpt::Tensor stored(tensor);
    values.emplace_back(stored.size());
    mpt::check(
        mpt_trainer_get(trainer.handle(), tensor.name, values.back().data(), static_cast<int64_t>(stored.size())));
    found.emplace_back(stored.name, MPT_FLOAT32, values.back().data(), stored.shape);
  }
  answer(MPT_OK, "", {}, found);
}

} // namespace

int main(int argc, char **argv) {
  try {
    if (argc != 2)
      throw mpt::Error(MPT_INVALID_ARGUMENT, "usage: library_server LIBRARY");
    mpt::Options options;
    options.threads = 1;
    mpt::Trainer trainer(argv[1], options);
    answer(MPT_OK, "", {}, {});
    for (;;)
      try {
        get<int64_t>() ? sendState(trainer) : run(trainer);
      } catch (const mpt::Error &problem) {
        answer(problem.status, problem.what(), {}, {});
      }
  } catch (const mpt::Error &problem) {
    answer(problem.status, problem.what(), {}, {});
    return 1;
  }
}
