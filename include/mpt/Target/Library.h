// SPDX-License-Identifier: Apache-2.0
// Options of an emitted library, for every target: its files, its kind, how it is linked.
#ifndef MPT_TARGET_LIBRARY_H
#define MPT_TARGET_LIBRARY_H

#include <string>

namespace mpt::memory {
struct KernelCode;
} // namespace mpt::memory

namespace mpt::target {

enum class LibraryKind { Shared, Static, Object };

struct LibraryOptions {
  std::string outDir; ///< made if missing
  std::string name;   ///< stem of every file written
  LibraryKind kind = LibraryKind::Shared;
  /// The target's runtime library to link with. Empty: the one beside this program's installation (../lib), if there is
  /// one; "none": its symbols are left to whoever loads the library.
  std::string runtimeLibrary;
  std::string linker; ///< empty: cc, then ld.lld, whichever is found
  /// The architecture that objects are for, as aarch64-linux-gnu, where it is not this machine's: a folder of runtime
  /// libraries, and the prefix of programs that link for it.
  std::string architecture;
  bool keepIR = false; ///< also writes <name>.ll
  /// Every value is looked at for infinities and NaN (mpt_rt_check, mpt_cuda_check).
  bool debugNonfinite = false;
  /// When given, receives the report of the target's assembler on each kernel, or why there is none.
  memory::KernelCode *kernelCode = nullptr;
};

} // namespace mpt::target

#endif // MPT_TARGET_LIBRARY_H
