// SPDX-License-Identifier: Apache-2.0
// A loaded, checked library, and the guard that keeps exceptions inside the C API.
#ifndef MPT_RUNTIME_CORE_MODEL_H
#define MPT_RUNTIME_CORE_MODEL_H

#include "core/Error.h"
#include "core/Json.h"
#include "core/LoadedLibrary.h"
#include "core/Replicas.h"
#include "core/Sizes.h"

#include "mpt-c/abi.h"

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace mpt::rt {

struct Model {
  const mpt_module_desc *desc = nullptr;
  LoadedLibrary library; // where it was loaded rather than linked
  std::string directory; // where the weights lie
  // The weights beside the library and the template of its model file, open since it was loaded: they belong together.
  int weights = -1, form = -1;
  // Of a library with replicas: the manifest's entry on them, and the step with the rows of all, or of one where each
  // process has one.
  std::unique_ptr<ReplicasOfModel> replicas;
  std::unique_ptr<GlobalStep> step;
  Sizes sizes;
  Json manifest; // of the library; no object where it has none that can be read
  Model() = default;
  Model(const Model &) = delete;
  ~Model();

  /// The path of the weights beside the library.
  std::string weightsFile() const;
  /// The path of the template.
  std::string templateFile() const;
  /// Null when the model has no such function; the error is then set. "step" of a library with replicas is theirs.
  const mpt_function_desc *function(const char *name) const;
};

/// "float32[4,3]", for messages.
std::string describe(int64_t dtype, int64_t rank, const int64_t *shape);

inline std::vector<int64_t> shapeOf(const mpt_tensor_desc &t) { return {t.shape, t.shape + t.rank}; }

inline int64_t elementsOf(const mpt_tensor_desc &t) {
  int64_t count = 1;
  for (int64_t i = 0; i < t.rank; ++i)
    count *= t.shape[i];
  return count;
}

inline mpt_tensor viewOf(const mpt_tensor_desc &t, void *data) {
  return {t.name, static_cast<int32_t>(t.dtype), static_cast<int32_t>(t.rank), t.shape, data};
}

template <typename Body> mpt_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(MPT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &e) {
    return fail(MPT_INTERNAL, "internal error: %s", e.what());
  } catch (...) {
    return fail(MPT_INTERNAL, "internal error: an exception of unknown type");
  }
}

} // namespace mpt::rt

struct mpt_model {
  std::shared_ptr<mpt::rt::Model> model;
};

#endif
