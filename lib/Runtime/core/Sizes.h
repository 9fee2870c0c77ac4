// SPDX-License-Identifier: Apache-2.0
// Libraries of several sizes: "step" and "step[batch=8]" are one function to callers, whose inputs say which.
#ifndef MPT_RUNTIME_CORE_SIZES_H
#define MPT_RUNTIME_CORE_SIZES_H

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <map>
#include <string>
#include <vector>

namespace mpt::rt {

struct Json;

class Sizes {
public:
  /// Reads the manifest's "sizes"; without them every function stands for itself.
  void read(const mpt_module_desc &module, const Json &manifest);
  /// The name of a function of the module without its size.
  std::string nameOf(const mpt_function_desc &f) const;
  /// Of the functions that callers know as `name`, the one whose inputs have the shapes of `inputs`: null, with the
  /// error set, where there is none. `only` is the answer where there is one size.
  const mpt_function_desc *choose(const char *name, const mpt_tensor *inputs, int64_t count,
                                  const mpt_function_desc *only) const;

private:
  std::vector<std::string> suffixes;
  std::map<std::string, std::vector<const mpt_function_desc *>, std::less<>> functions; ///< by name without size
};

} // namespace mpt::rt

#endif
