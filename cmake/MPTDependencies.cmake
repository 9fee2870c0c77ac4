# LLVM and MLIR 22 (shared libraries only), protobuf and the ONNX C++ library.
find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
include_directories(${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include)

find_package(Protobuf REQUIRED)
find_package(ONNX CONFIG REQUIRED HINTS ${MPT_DEPS_DIR}/onnx-1.23.2/lib/cmake/ONNX)

# Upstream's headers cost seconds a file; one precompiled header of them (never of ours) is shared by every library.
add_library(mpt_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
set_target_properties(mpt_pch PROPERTIES PCH_INSTANTIATE_TEMPLATES ON)
target_precompile_headers(mpt_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
target_compile_options(mpt_pch PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
