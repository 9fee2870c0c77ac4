// SPDX-License-Identifier: Apache-2.0
// Indices out of range: every type, boxes of elements, several ranges, tables that make no sense.
#include "Check.h"
#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <cmath>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

int runs = 0;
int32_t count(mpt_exec *) {
  ++runs;
  return 0;
}

/// Columns 1 and 3 of [2, 4], 0 to 2 or -7.
struct Library {
  int64_t shape[2] = {2, 4}, box[2] = {2, 2}, strides[2] = {4, 2}, ranges[4] = {-7, -7, 0, 2};
  mpt_tensor_desc input;
  mpt_index_desc index{0, "/embed/Gather", 1, 2, box, strides, 2, ranges};
  mpt_function_desc function;
  mpt_module_desc module;

  explicit Library(int64_t dtype, int64_t size) : input{}, function{}, module{} {
    input.name = "tokens";
    input.of = "";
    input.shape = shape;
    input.rank = 2;
    input.dtype = dtype;
    input.role = MPT_ROLE_INPUT;
    input.bytes = 8 * size;
    function.name = "step";
    function.entry = count;
    function.num_inputs = 1;
    function.inputs = &input;
    function.num_indices = 1;
    function.indices = &index;
    module.abi_version = MPT_ABI_VERSION;
    module.name = "indices";
    module.fingerprint = "5eed";
    module.manifest = "{}";
    module.cpu = "generic";
    module.cpu_features = "";
    module.num_functions = 1;
    module.functions = &function;
    module.target = "cpu";
  }
};

std::string weights() {
  char name[] = "/tmp/mpt-indices-XXXXXX";
  int fd = mkstemp(name);
  EXPECT(write(fd, "\2\0\0\0\0\0\0\0{}", 10) == 10);
  close(fd);
  return name;
}

template <typename T> void testType(int64_t dtype, const std::string &file, bool isSigned) {
  Library library(dtype, sizeof(T));
  mpt_model *model = nullptr;
  mpt_trainer *trainer = nullptr;
  mpt_trainer_options options{};
  options.weights = file.c_str();
  EXPECT(mpt_model_from_desc(&library.module, nullptr, &model) == MPT_OK);
  if (!EXPECT(mpt_trainer_create(model, &options, &trainer) == MPT_OK))
    return;
  // Elements outside the box may be anything.
  std::vector<T> good{T(99), T(2), T(99), T(0), T(99), T(1), T(99), T(isSigned ? -7 : 2)};
  auto step = [&](const std::vector<T> &values) {
    mpt_tensor tensor{"tokens", static_cast<int32_t>(dtype), 2, library.shape, const_cast<T *>(values.data())};
    return mpt_trainer_step(trainer, &tensor, 1, nullptr);
  };
  runs = 0;
  EXPECT(step(good) == MPT_OK && runs == 1);
  // Callers' arrays need not be aligned; sanitizers tell.
  std::vector<char> bytes(good.size() * sizeof(T) + 1);
  memcpy(bytes.data() + 1, good.data(), good.size() * sizeof(T));
  mpt_tensor shifted{"tokens", static_cast<int32_t>(dtype), 2, library.shape, bytes.data() + 1};
  EXPECT(mpt_trainer_step(trainer, &shifted, 1, nullptr) == MPT_OK && runs == 2);
  std::vector<std::pair<size_t, T>> wrong{{1, T(3)}, {3, T(100)}, {7, T(3)}};
  if (isSigned)
    wrong.insert(wrong.end(), {{5, T(-1)}, {7, T(-8)}});
  for (auto [place, value] : wrong) {
    std::vector<T> bad = good;
    bad[place] = value;
    runs = 0;
    std::string text = "input 'tokens' of 'step': expected 0 to 2 or -7 for node '/embed/Gather', got " +
                       std::to_string(static_cast<int64_t>(value)) + " at [" + std::to_string(place / 4) + "," +
                       std::to_string(place % 4) + "]";
    EXPECT(step(bad) == MPT_INVALID_ARGUMENT && runs == 0 && mpt_last_error() == text);
  }
  mpt_trainer_destroy(trainer);
  mpt_model_destroy(model);
}

void testNoNumbers(const std::string &file) {
  Library library(MPT_FLOAT32, 4);
  mpt_model *model = nullptr;
  mpt_trainer *trainer = nullptr;
  mpt_trainer_options options{};
  options.weights = file.c_str();
  EXPECT(mpt_model_from_desc(&library.module, nullptr, &model) == MPT_OK &&
         mpt_trainer_create(model, &options, &trainer) == MPT_OK);
  for (float value : {NAN, INFINITY, -INFINITY, 3e38f}) {
    float values[8] = {0, 1, 0, 1, 0, value, 0, 1};
    mpt_tensor tensor{"tokens", MPT_FLOAT32, 2, library.shape, values};
    EXPECT(mpt_trainer_step(trainer, &tensor, 1, nullptr) == MPT_INVALID_ARGUMENT);
  }
  mpt_trainer_destroy(trainer);
  mpt_model_destroy(model);
}

void testTables() {
  auto refused = [](auto change) {
    Library library(MPT_INT64, 8);
    change(library);
    mpt_model *model = nullptr;
    bool ok = mpt_model_from_desc(&library.module, nullptr, &model) == MPT_BAD_FILE && !model;
    mpt_model_destroy(model);
    return ok;
  };
  EXPECT(refused([](Library &l) { l.index.input = 1; }));
  EXPECT(refused([](Library &l) { l.index.offset = -1; }));
  EXPECT(refused([](Library &l) { l.index.offset = 2; })); // its last element is one past the end
  EXPECT(refused([](Library &l) { l.box[0] = 3; }));
  EXPECT(refused([](Library &l) { l.strides[0] = INT64_MAX; }));
  EXPECT(refused([](Library &l) { l.strides[1] = -1; }));
  EXPECT(!refused([](Library &) {}));
}

} // namespace

int main() {
  std::string file = weights();
  testType<int64_t>(MPT_INT64, file, true);
  testType<int32_t>(MPT_INT32, file, true);
  testType<int16_t>(MPT_INT16, file, true);
  testType<int8_t>(MPT_INT8, file, true);
  testType<uint64_t>(MPT_UINT64, file, false);
  testType<uint32_t>(MPT_UINT32, file, false);
  testType<uint16_t>(MPT_UINT16, file, false);
  testType<uint8_t>(MPT_UINT8, file, false);
  testType<float>(MPT_FLOAT32, file, true);
  testType<double>(MPT_FLOAT64, file, true);
  testNoNumbers(file);
  testTables();
  unlink(file.c_str());
  return mpt::test::finish("indices");
}
