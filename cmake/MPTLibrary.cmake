# SPDX-License-Identifier: Apache-2.0
# mpt_library(NAME [FOLDERS folder...] [LINK lib...]): a static library of the .cpp files in the current
# folder and in FOLDERS.
function(mpt_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LINK" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(folder ${ARG_FOLDERS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(${name} STATIC ${sources})
  if(MPT_SANITIZE)
    # Generated code takes minutes a file under the undefined-behaviour sanitizer; functions that it calls stay checked.
    set(generated ${sources})
    list(FILTER generated INCLUDE REGEX "Dialect\\.cpp$")
    set_source_files_properties(${generated} PROPERTIES COMPILE_OPTIONS -fno-sanitize=undefined)
  endif()
  add_dependencies(${name} mpt_generated)
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  mpt_use_pch(${name})
endfunction()

# mpt_tool(NAME main.cpp LINK lib... [STATIC]): an executable in bin/, with STATIC one that starts quickly.
function(mpt_tool name source)
  cmake_parse_arguments(ARG "STATIC" "" "LINK" ${ARGN})
  add_executable(${name} ${source})
  add_dependencies(${name} mpt_generated)
  if(ARG_STATIC)
    target_link_libraries(${name} PRIVATE mpt_upstream_static mpt_static_libstdcxx ${ARG_LINK})
    target_link_options(${name} PRIVATE -no-pie) # fixed addresses need no relocations
  else()
    target_link_libraries(${name} PRIVATE ${ARG_LINK} mpt_upstream_shared)
  endif()
endfunction()
