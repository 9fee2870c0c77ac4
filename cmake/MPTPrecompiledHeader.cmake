# SPDX-License-Identifier: Apache-2.0
# One precompiled header of upstream's headers and of our own that most files include, which otherwise cost more than the files.
# A rule of its own and not CMake's: pch.h.pch.sum, of the headers' texts and not their paths, lets ccache serve every checkout.
option(MPT_PCH "Start files from a precompiled header (OFF shows that each includes the headers it uses)" ON)
set(MPT_PCH_FILE ${CMAKE_BINARY_DIR}/pch/pch.h.pch)
if(MPT_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  separate_arguments(pch_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} -std=c++17 -fPIC")
  get_directory_property(options COMPILE_OPTIONS)
  list(APPEND pch_flags ${options} $<$<BOOL:${MPT_WERROR}>:-Werror>)
  file(WRITE ${CMAKE_BINARY_DIR}/pch/sum.sh [[sed 's/^[^:]*: //; s/ \\$//' pch.h.pch.d | xargs cat | sha256sum >pch.h.pch.sum]])
  # Not by ccache: the file names its headers by their full paths, and an entry that another checkout cached has that one's.
  add_custom_command(
    OUTPUT ${MPT_PCH_FILE} ${MPT_PCH_FILE}.sum
    COMMAND ${CMAKE_CXX_COMPILER} ${pch_flags} -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_BINARY_DIR}/include -isystem ${LLVM_INCLUDE_DIRS}
            -fpch-instantiate-templates -Xclang -fno-pch-timestamp -MD -MF ${MPT_PCH_FILE}.d -x c++-header ${CMAKE_SOURCE_DIR}/cmake/pch.h -o ${MPT_PCH_FILE}
    COMMAND sh sum.sh
    DEPENDS mpt_generated cmake/pch.h DEPFILE ${MPT_PCH_FILE}.d
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/pch COMMAND_EXPAND_LISTS VERBATIM COMMENT "Precompiling headers")
  add_custom_target(mpt_pch DEPENDS ${MPT_PCH_FILE})
endif()

# mpt_use_pch(TARGET): lets a static library's files start from the precompiled header. Each file still depends on the headers in it,
# and not on the others.
function(mpt_use_pch target)
  if(TARGET mpt_pch)
    target_compile_options(${target} PRIVATE -include-pch ${MPT_PCH_FILE} "SHELL:-Xclang -fno-pch-timestamp")
    set_property(TARGET ${target} PROPERTY CXX_EXTENSIONS OFF)
    add_dependencies(${target} mpt_pch)
  endif()
endfunction()
