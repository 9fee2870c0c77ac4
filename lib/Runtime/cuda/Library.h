// SPDX-License-Identifier: Apache-2.0
// Opening a library of functions at run time.
#ifndef MPT_RUNTIME_CUDA_LIBRARY_H
#define MPT_RUNTIME_CUDA_LIBRARY_H

#include <dlfcn.h>
#include <initializer_list>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>

namespace mpt::rt::cu {

/// A dlopened library, which stays for the life of the process.
class Library {
  void *handle = nullptr;

public:
  std::string problem; // why it is not there, or the function that it lacks

  /// Opens the file `given`; if it is empty, the first of `names` that the process has open already, that is in one of
  /// `folders` (with colons between), or that the system finds. `option` is the trainer's option that gives the file.
  bool open(const char *option, const std::string &given, const std::string &folders,
            std::initializer_list<const char *> names) {
    if (!given.empty()) {
      handle = dlopen(given.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle)
        problem = "cannot load " + given + " (option " + option + "): " + dlerror();
      return handle;
    }
    for (const char *name : names)
      if ((handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)))
        return true;
    std::istringstream list(folders);
    for (std::string folder; std::getline(list, folder, ':');)
      for (const char *name : names) {
        const std::string file = folder + "/" + name;
        if (access(file.c_str(), R_OK) == 0 && (handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)))
          return true;
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

/// One State, with `open(file, folders)` and opened once, for every file and folders that trainers of the process give.
template <typename State> State &openedOnce(const std::string &file, const std::string &folders) {
  static std::mutex lock;
  static std::map<std::pair<std::string, std::string>, State> states;
  std::lock_guard<std::mutex> guard(lock);
  auto [entry, isNew] = states.try_emplace({file, folders});
  if (isNew)
    entry->second.open(file, folders);
  return entry->second;
}

} // namespace mpt::rt::cu

#endif
