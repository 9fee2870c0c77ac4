// SPDX-License-Identifier: Apache-2.0
// Trains in ONNX Runtime alone: loops a step that `mpt-opt --emit=onnx --onnx-state=inputs` wrote.
//   train STEP.onnx STEPS NAME=FILE...
// A file holds the raw bytes of one or more batches of the input NAME, back to back, which are used in turn.
#include <onnxruntime_cxx_api.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

size_t bytesOf(ONNXTensorElementDataType type) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
    return 8;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    return 4;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    return 2;
  default:
    return 1;
  }
}

/// Which input each output of the file feeds in the next step.
std::map<std::string, std::string> inputsOfNext(const Ort::Session &session, OrtAllocator *allocator) {
  std::string states = session.GetModelMetadata().LookupCustomMetadataMapAllocated("mpt.states", allocator).get();
  std::regex entry(R"re("([^"]*)":\{([^}]*)\})re"), next(R"re("next":"([^"]*)")re"),
      other(R"re("initializer":"([^"]*)")re");
  std::map<std::string, std::string> inputs;
  for (std::sregex_iterator at(states.begin(), states.end(), entry), end; at != end; ++at) {
    std::string name = (*at)[1], fields = (*at)[2];
    std::smatch found, called;
    if (std::regex_search(fields, found, next))
      inputs[found[1]] = std::regex_search(fields, called, other) ? called[1].str() : name;
  }
  return inputs;
}

void train(const char *path, int steps, const std::map<std::string, std::string> &files) {
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR); // that states are inputs is meant
  Ort::Session session(env, path, Ort::SessionOptions());
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::map<std::string, std::vector<char>> data;
  std::map<std::string, std::vector<Ort::Value>> batches;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    std::string name = session.GetInputNameAllocated(i, allocator).get();
    std::ifstream file(files.count(name) ? files.at(name) : "", std::ios::binary);
    std::vector<char> &bytes = data[name] = std::vector<char>(std::istreambuf_iterator<char>(file), {});
    Ort::TypeInfo type = session.GetInputTypeInfo(i);
    auto tensor = type.GetTensorTypeAndShapeInfo();
    std::vector<int64_t> shape = tensor.GetShape();
    ONNXTensorElementDataType element = tensor.GetElementType();
    size_t size = tensor.GetElementCount() * bytesOf(element);
    if (bytes.empty() || bytes.size() % size)
      throw std::runtime_error("expected " + name + "=FILE with a multiple of " + std::to_string(size) + " bytes");
    for (size_t from = 0; from < bytes.size(); from += size)
      batches[name].push_back(
          Ort::Value::CreateTensor(memory, bytes.data() + from, size, shape.data(), shape.size(), element));
  }
  std::map<std::string, std::string> inputs = inputsOfNext(session, allocator);
  Ort::IoBinding binding(session);
  for (int step = 0; step < steps; ++step) {
    for (const auto &[name, values] : batches)
      binding.BindInput(name.c_str(), values[step % values.size()]);
    for (size_t i = 0; i < session.GetOutputCount(); ++i) // buffers that the next step reads are not written to
      binding.BindOutput(session.GetOutputNameAllocated(i, allocator).get(), memory);
    session.Run(Ort::RunOptions(), binding);
    std::vector<Ort::Value> values = binding.GetOutputValues();
    std::vector<std::string> names = binding.GetOutputNames();
    for (size_t i = 0; i < names.size(); ++i) // before the first step, states have their defaults
      if (auto state = inputs.find(names[i]); state != inputs.end())
        binding.BindInput(state->second.c_str(), values[i]);
      else if (names[i] == "loss" && (step % 20 == 0 || step + 1 == steps))
        printf("step %d loss %.6f\n", step, *values[i].GetTensorData<float>());
  }
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> files;
  for (int i = 3; i < argc; ++i) {
    std::string text = argv[i];
    files[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  try {
    train(argc > 1 ? argv[1] : "step.onnx", argc > 2 ? atoi(argv[2]) : 100, files);
  } catch (const std::exception &problem) {
    fprintf(stderr, "train: %s\n", problem.what());
    return 1;
  }
  return 0;
}
