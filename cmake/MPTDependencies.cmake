# SPDX-License-Identifier: Apache-2.0
# LLVM and MLIR 22, protobuf and the ONNX C++ library.
find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
include_directories(${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include)

find_package(Protobuf REQUIRED)
find_package(ONNX CONFIG REQUIRED HINTS ${MPT_DEPS_DIR}/onnx-1.23.2/lib/cmake/ONNX)

include(MPTPrecompiledHeader)

# The libraries that an executable takes MLIR and LLVM from. The shared libraries relocate a million pointers at each start (some 25 ms);
# tools that users start a model at a time, and libmpt_compiler, hold their parts in themselves instead. Linking takes a second either way.
add_library(mpt_upstream_shared INTERFACE)
target_link_libraries(mpt_upstream_shared INTERFACE MLIR LLVM)
add_library(mpt_upstream_static INTERFACE)
file(GLOB upstream_archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
list(FILTER upstream_archives EXCLUDE REGEX "lib(MLIRCAPI|MLIRTest)")
find_library(MPT_ZSTD NAMES zstd libzstd.so.1)
find_library(MPT_PROTOBUF_ARCHIVE libprotobuf.a)
find_package(ZLIB)
if(upstream_archives AND ZLIB_FOUND AND MPT_ZSTD AND MPT_PROTOBUF_ARCHIVE AND CMAKE_LINKER_TYPE STREQUAL "LLD" AND NOT MPT_SANITIZE)
  # Start-up code of all files side by side costs fewer page faults.
  target_link_options(mpt_upstream_static INTERFACE LINKER:--as-needed LINKER:--gc-sections LINKER:-z,keep-text-section-prefix)
  target_link_libraries(mpt_upstream_static INTERFACE ${MPT_PROTOBUF_ARCHIVE} ${upstream_archives} ZLIB::ZLIB ${MPT_ZSTD} dl m)
else()
  target_link_libraries(mpt_upstream_static INTERFACE mpt_upstream_shared)
endif()
