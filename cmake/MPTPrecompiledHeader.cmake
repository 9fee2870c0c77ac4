# SPDX-License-Identifier: Apache-2.0
# One precompiled header of upstream's headers (never of ours), which otherwise cost seconds a file. It lies outside the
# build folder, named after its contents, so that every build folder of a machine, and ccache, shares it.
set(pch_flags -std=c++17 -fPIC -fvisibility-inlines-hidden)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
separate_arguments(type_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
list(APPEND pch_flags ${type_flags})
if(MPT_SANITIZE)
  list(APPEND pch_flags -fsanitize=${MPT_SANITIZE} -fno-omit-frame-pointer)
  if(MPT_BUILD_FUZZERS)
    list(APPEND pch_flags -fsanitize=fuzzer-no-link)
  endif()
endif()

set(MPT_PCH "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  file(READ ${CMAKE_SOURCE_DIR}/cmake/pch.h pch_text)
  string(SHA256 pch_key "${pch_text};${pch_flags};${CMAKE_CXX_COMPILER_VERSION};${LLVM_PACKAGE_VERSION};${MLIR_INCLUDE_DIRS}")
  string(SUBSTRING ${pch_key} 0 16 pch_key)
  set(MPT_PCH ${MPT_DEPS_DIR}/pch/${pch_key}/pch.h.pch)
  if(NOT EXISTS ${MPT_PCH})
    message(STATUS "Precompiling upstream headers")
    # Under a name of its own first: another configuration may be doing the same.
    string(RANDOM LENGTH 8 suffix)
    get_filename_component(pch_folder ${MPT_PCH} DIRECTORY)
    file(MAKE_DIRECTORY ${pch_folder})
    file(COPY ${CMAKE_SOURCE_DIR}/cmake/pch.h DESTINATION ${pch_folder})
    execute_process(
      COMMAND ${CMAKE_CXX_COMPILER} ${pch_flags} -isystem ${LLVM_INCLUDE_DIRS} -fpch-instantiate-templates
              -Xclang -fno-pch-timestamp -x c++-header ${pch_folder}/pch.h -o ${MPT_PCH}.${suffix}
      RESULT_VARIABLE pch_status)
    if(pch_status EQUAL 0)
      file(RENAME ${MPT_PCH}.${suffix} ${MPT_PCH})
    else()
      message(STATUS "Precompiling failed; every file reads the headers itself")
      set(MPT_PCH "")
    endif()
  endif()
endif()

# mpt_use_pch(TARGET): lets a static library's files start from the precompiled header.
function(mpt_use_pch target)
  if(MPT_PCH)
    target_compile_options(${target} PRIVATE -include-pch ${MPT_PCH} "SHELL:-Xclang -fno-pch-timestamp")
    set_property(TARGET ${target} PROPERTY CXX_EXTENSIONS OFF)
    get_target_property(sources ${target} SOURCES)
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES OBJECT_DEPENDS ${MPT_PCH})
  endif()
endfunction()
