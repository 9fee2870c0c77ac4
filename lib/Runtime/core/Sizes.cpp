// SPDX-License-Identifier: Apache-2.0
// Chooses among the sizes of a library by the shapes of a call's inputs.
#include "core/Sizes.h"

#include "core/Json.h"
#include "core/Model.h"

#include <algorithm>
#include <cstring>

namespace mpt::rt {

namespace {

bool hasShape(const mpt_tensor &given, const mpt_tensor_desc &want) {
  return given.rank == want.rank &&
         (want.rank == 0 || (given.shape && std::equal(want.shape, want.shape + want.rank, given.shape)));
}

/// The input of `f` that `given` is, or null: unknown names are refused once the function is chosen.
const mpt_tensor_desc *inputOf(const mpt_function_desc &f, const mpt_tensor &given) {
  for (int64_t i = 0; given.name && i < f.num_inputs; ++i)
    if (strcmp(f.inputs[i].name, given.name) == 0)
      return &f.inputs[i];
  return nullptr;
}

bool takes(const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count) {
  return std::all_of(inputs, inputs + count, [&](const mpt_tensor &given) {
    const mpt_tensor_desc *want = inputOf(f, given);
    return !want || hasShape(given, *want);
  });
}

/// "float32[1,4], float32[8,4] or float32[32,4]": the shapes that an input may have.
std::string shapesOf(const std::vector<const mpt_function_desc *> &sizes, const mpt_tensor &given) {
  std::vector<std::string> all;
  for (const mpt_function_desc *f : sizes)
    if (const mpt_tensor_desc *want = inputOf(*f, given))
      if (std::string text = describe(want->dtype, want->rank, want->shape);
          std::find(all.begin(), all.end(), text) == all.end())
        all.push_back(text);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i];
  return text;
}

} // namespace

void Sizes::read(const mpt_module_desc &module, const Json &manifest) {
  const Json *sizes = manifest.find("sizes");
  if (!sizes || sizes->kind != Json::Array)
    return;
  for (const Json &size : sizes->array)
    suffixes.push_back("[" + size.string + "]");
  for (int64_t i = 0; i < module.num_functions; ++i)
    functions[nameOf(module.functions[i])].push_back(&module.functions[i]);
}

std::string Sizes::nameOf(const mpt_function_desc &f) const {
  std::string name = f.name;
  for (const std::string &suffix : suffixes)
    if (name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      return name.substr(0, name.size() - suffix.size());
  return name;
}

const mpt_function_desc *Sizes::choose(const char *name, const mpt_tensor *inputs, int64_t count,
                                       const mpt_function_desc *only) const {
  auto found = functions.find(name);
  if (found == functions.end() || found->second.size() == 1)
    return only;
  const std::vector<const mpt_function_desc *> &sizes = found->second;
  for (const mpt_function_desc *f : sizes)
    if (takes(*f, inputs, count))
      return f;
  for (const mpt_tensor *given = inputs; given < inputs + count; ++given)
    if (std::none_of(sizes.begin(), sizes.end(), [&](auto *f) { return takes(*f, given, 1); })) {
      fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected %s, got %s; --bind adds a size to the library",
           given->name, name, shapesOf(sizes, *given).c_str(),
           describe(given->dtype, given->shape ? std::clamp(given->rank, 0, 32) : 0, given->shape).c_str());
      return nullptr;
    }
  std::string known;
  for (const std::string &suffix : suffixes)
    known += (known.empty() ? "" : " ") + suffix;
  fail(MPT_INVALID_ARGUMENT, "inputs of '%s': expected all of one size, got those of several; the library has %s", name,
       known.c_str());
  return nullptr;
}

} // namespace mpt::rt
