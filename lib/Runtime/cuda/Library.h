// SPDX-License-Identifier: Apache-2.0
// Opening a library of functions at run time.
#ifndef MPT_RUNTIME_CUDA_LIBRARY_H
#define MPT_RUNTIME_CUDA_LIBRARY_H

#include <cstdlib>
#include <dlfcn.h>
#include <initializer_list>
#include <string>

namespace mpt::rt::cu {

/// A dlopened library, which stays for the life of the process.
class Library {
  void *handle = nullptr;

public:
  std::string problem; // why it is not there, or what it lacks

  /// Opens the file that environment variable `variable` names, or the first of `names` that is there.
  bool open(const char *variable, std::initializer_list<const char *> names) {
    const char *given = getenv(variable);
    if (given && *given) {
      handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
      if (!handle)
        problem = std::string("cannot load ") + given + " (" + variable + "): " + dlerror();
      return handle;
    }
    for (const char *name : names) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle)
        return true;
      problem = dlerror();
    }
    return false;
  }
  /// Stores the address of a function; false when the library lacks it.
  template <typename F> bool load(F *&function, const char *name) {
    function = reinterpret_cast<F *>(dlsym(handle, name));
    if (!function)
      problem = std::string("it has no function ") + name;
    return function;
  }
};

} // namespace mpt::rt::cu

#endif
