// SPDX-License-Identifier: Apache-2.0
// Tables of MPI's functions for handles that are numbers (MPICH and its kin) or addresses (Open MPI, MPI 5's
// interface).
#include "world/MpiLibrary.h"

#include <cstdint>
#include <cstring>
#include <dlfcn.h>

using namespace mpt::rt;

namespace {

/// Constants that differ between binary interfaces.
template <typename Handle> struct Constants {
  const char *name;
  Handle world, byte, errorsReturn;
  int threadFunneled, threadMultiple;
};

/// A request as MPI wants it, in memory that stays where it is.
template <typename Handle> Handle &requestOf(MpiRequest &request) {
  static_assert(sizeof(Handle) <= sizeof request.handle);
  return *reinterpret_cast<Handle *>(&request.handle);
}

template <typename Handle> class Table : public MpiLibrary {
  Constants<Handle> constants;
  Handle own = {};

  struct Functions {
    int (*Initialized)(int *);
    int (*Finalized)(int *);
    int (*Init_thread)(int *, char ***, int, int *);
    int (*Query_thread)(int *);
    int (*Finalize)();
    int (*Comm_dup)(Handle, Handle *);
    int (*Comm_free)(Handle *);
    int (*Comm_set_errhandler)(Handle, Handle);
    int (*Comm_rank)(Handle, int *);
    int (*Comm_size)(Handle, int *);
    int (*Isend)(const void *, int, Handle, int, int, Handle, Handle *);
    int (*Irecv)(void *, int, Handle, int, int, Handle, Handle *);
    int (*Test)(Handle *, int *, void *);
    int (*Cancel)(Handle *);
    int (*Error_string)(int, char *, int *);
  } call = {};

  /// More than any library's status.
  struct alignas(16) Status {
    uint8_t bytes[256];
  };

  template <typename Function> static bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

public:
  explicit Table(const Constants<Handle> &constants) : constants(constants) {}

  bool load(void *library) {
    return find(library, "MPI_Initialized", call.Initialized) && find(library, "MPI_Finalized", call.Finalized) &&
           find(library, "MPI_Init_thread", call.Init_thread) && find(library, "MPI_Query_thread", call.Query_thread) &&
           find(library, "MPI_Finalize", call.Finalize) && find(library, "MPI_Comm_dup", call.Comm_dup) &&
           find(library, "MPI_Comm_free", call.Comm_free) &&
           find(library, "MPI_Comm_set_errhandler", call.Comm_set_errhandler) &&
           find(library, "MPI_Comm_rank", call.Comm_rank) && find(library, "MPI_Comm_size", call.Comm_size) &&
           find(library, "MPI_Isend", call.Isend) && find(library, "MPI_Irecv", call.Irecv) &&
           find(library, "MPI_Test", call.Test) && find(library, "MPI_Cancel", call.Cancel) &&
           find(library, "MPI_Error_string", call.Error_string);
  }

  const char *name() const override { return constants.name; }
  bool isInitialized() override {
    int flag = 0;
    return call.Initialized(&flag) == 0 && flag;
  }
  bool isFinalized() override {
    int flag = 0;
    return call.Finalized(&flag) == 0 && flag;
  }
  int initialize() override {
    int provided = 0;
    return call.Init_thread(nullptr, nullptr, constants.threadFunneled, &provided);
  }
  int finalize() override { return call.Finalize(); }
  bool allowsThreads() override {
    int provided = 0;
    return call.Query_thread(&provided) == 0 && provided >= constants.threadMultiple;
  }
  int open(int &rank, int &size) override {
    if (int error = call.Comm_dup(constants.world, &own))
      return error;
    if (int error = call.Comm_set_errhandler(own, constants.errorsReturn))
      return error;
    if (int error = call.Comm_rank(own, &rank))
      return error;
    return call.Comm_size(own, &size);
  }
  int close() override { return call.Comm_free(&own); }

  int send(const void *data, int bytes, int peer, int tag, MpiRequest &request) override {
    request.active = true;
    return call.Isend(data, bytes, constants.byte, peer, tag, own, &requestOf<Handle>(request));
  }
  int receive(void *data, int bytes, int peer, int tag, MpiRequest &request) override {
    request.active = true;
    return call.Irecv(data, bytes, constants.byte, peer, tag, own, &requestOf<Handle>(request));
  }
  int test(MpiRequest &request) override {
    Status status;
    int done = 0, error = call.Test(&requestOf<Handle>(request), &done, &status);
    request.active = !error && !done;
    return error;
  }
  int cancel(MpiRequest &request) override { return call.Cancel(&requestOf<Handle>(request)); }
  std::string textOf(int error) override {
    char text[8192] = {}; // the longest of all interfaces
    int length = 0;
    return call.Error_string(error, text, &length) == 0 ? text : "error " + std::to_string(error);
  }
};

template <typename Handle>
Failure makeTable(void *library, const Constants<Handle> &constants, std::unique_ptr<MpiLibrary> &out) {
  auto table = std::make_unique<Table<Handle>>(constants);
  if (!table->load(library))
    return {MPT_INCOMPATIBLE, -1, std::string("the library of ") + constants.name + " lacks functions of MPI 3"};
  out = std::move(table);
  return {};
}

/// The standard interface defines handles as numbers.
void *handleOf(uintptr_t number) {
  return reinterpret_cast<void *>(number); // NOLINT(performance-no-int-to-ptr)
}

/// Which binary interface a library has. MPI 5 has a call that says whether it is the standard one; it comes first, as
/// that interface may lie in front of Open MPI's names.
Failure recognize(void *library, std::unique_ptr<MpiLibrary> &out) {
  int major = -1, minor = -1;
  if (auto version = reinterpret_cast<int (*)(int *, int *)>(dlsym(library, "MPI_Abi_get_version")))
    version(&major, &minor);
  if (major >= 1) // with the numbers of MPI 5.0's chapter on the ABI
    return makeTable<void *>(
        library, {"MPI's standard binary interface", handleOf(0x101), handleOf(0x247), handleOf(0x142), 1024, 4096},
        out);
  if (void *world = dlsym(library, "ompi_mpi_comm_world"))
    return makeTable<void *>(
        library, {"Open MPI", world, dlsym(library, "ompi_mpi_byte"), dlsym(library, "ompi_mpi_errors_return"), 1, 3},
        out);
  // The numbers of the MPICH ABI Compatibility Initiative: MPICH, Intel MPI, MVAPICH, Cray.
  return makeTable<int>(library, {"MPICH", 0x44000000, 0x4c00010d, 0x54000001, 1, 3}, out);
}

} // namespace

Failure mpt::rt::openMpiLibrary(const std::string &path, const std::vector<std::string> &names,
                                std::unique_ptr<MpiLibrary> &out) {
  // Parts that Open MPI loads later look for its names in the whole process.
  constexpr int mode = RTLD_NOW | RTLD_GLOBAL;
  if (!path.empty()) {
    void *library = dlopen(path.c_str(), mode);
    if (!library)
      return {MPT_NOT_FOUND, -1, std::string("cannot open the MPI library: ") + dlerror()};
    return recognize(library, out);
  }
  if (dlsym(RTLD_DEFAULT, "MPI_Init_thread"))
    return recognize(RTLD_DEFAULT, out);
  std::string tried;
  for (const std::string &name : names) {
    if (void *library = dlopen(name.c_str(), mode))
      return recognize(library, out);
    tried += (tried.empty() ? "" : ", ") + name;
  }
  return {MPT_NOT_FOUND, -1,
          "no MPI library was found (" + tried +
              "): install the launcher's own one, name it (`mpi_library`), or use transport tcp"};
}
