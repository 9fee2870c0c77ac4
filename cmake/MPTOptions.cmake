# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, build types and sanitizers that every target shares.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Debian's LLVM has assertions off, so ours stay on in every build type.
set(CMAKE_CXX_FLAGS_DEV "-O1 -g1 -UNDEBUG")
set(CMAKE_C_FLAGS_DEV "-O1 -g1 -UNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -UNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -UNDEBUG")

# Members that an aggregate leaves to their defaults need no initializer. libstdc++'s stable_sort uses a function that it
# deprecates itself; what LLVM deprecates shows under -Wdeprecated-declarations in CMAKE_CXX_FLAGS.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-deprecated-declarations
                    -fvisibility-inlines-hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-fcolor-diagnostics)
endif()
set(CMAKE_COMPILE_WARNING_AS_ERROR ${MPT_WERROR})
if(MPT_SANITIZE)
  add_compile_options(-fsanitize=${MPT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MPT_SANITIZE})
  if(MPT_BUILD_FUZZERS)
    add_compile_options(-fsanitize=fuzzer-no-link) # coverage that the fuzzers steer by
  endif()
endif()

# For programs that are installed on machines with older C and C++ libraries.
add_library(mpt_static_libstdcxx INTERFACE)
if(NOT MPT_SANITIZE)
  target_link_options(mpt_static_libstdcxx INTERFACE -static-libstdc++)
  target_sources(mpt_static_libstdcxx INTERFACE ${CMAKE_SOURCE_DIR}/lib/Support/glibc/arc4random.c)
endif()
