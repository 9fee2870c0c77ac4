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

include(MPTPrecompiledHeader)
