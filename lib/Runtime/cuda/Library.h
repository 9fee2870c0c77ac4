// SPDX-License-Identifier: Apache-2.0
// Opening a library of functions at run time.
#ifndef MPT_RUNTIME_CUDA_LIBRARY_H
#define MPT_RUNTIME_CUDA_LIBRARY_H

#include <dlfcn.h>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>

namespace mpt::rt::cu {

/// A dlopened library, which stays for the life of the process.
class Library {
  void *handle = nullptr;

public:
  std::string problem; // why it is not there, or what it lacks

  /// Opens the file `given`, or the first of `names` that is there if it is empty. `option` is the trainer's option
  /// that gives it.
  bool open(const char *option, const std::string &given, std::initializer_list<const char *> names) {
    if (!given.empty()) {
      handle = dlopen(given.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle)
        problem = "cannot load " + given + " (option " + option + "): " + dlerror();
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

/// One State, with `open(file)` and opened once, for every file that trainers of the process give.
template <typename State> State &openedOnce(const std::string &file) {
  static std::mutex lock;
  static std::map<std::string, State> states;
  std::lock_guard<std::mutex> guard(lock);
  auto [entry, isNew] = states.try_emplace(file);
  if (isNew)
    entry->second.open(file);
  return entry->second;
}

} // namespace mpt::rt::cu

#endif
