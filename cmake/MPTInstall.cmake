# SPDX-License-Identifier: Apache-2.0
# The files that `cmake --install` puts under a prefix: compiler and runtimes, headers, the CMake package `mpt` and mpt.pc. All of it finds
# its parts by where it lies itself, so that a prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mpt)

# The runtime's oneDNN travels with it, where it does not belong to the system.
cmake_path(IS_PREFIX CMAKE_SOURCE_DIR "${MPT_ONEDNN_LIBRARY}" onednn_is_ours)
if(MPT_ONEDNN AND onednn_is_ours)
  file(REAL_PATH "${MPT_ONEDNN_LIBRARY}" onednn)
  install(FILES ${onednn} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libdnnl.so.3)
endif()

# mpt_install(TARGET NAME): a shared library of the build as mpt::NAME.
function(mpt_install target name)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} INSTALL_RPATH $ORIGIN)
  target_link_libraries(${target} PRIVATE mpt_static_libstdcxx) # what they export is C
  install(TARGETS ${target} EXPORT mpt DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()
mpt_install(mpt_rt runtime)
if(TARGET mpt_rt_cuda)
  mpt_install(mpt_rt_cuda runtime_cuda)
endif()
if(MPT_BUILD_COMPILER)
  mpt_install(mpt_compiler compiler)
  set_target_properties(mpt-opt PROPERTIES INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
  install(TARGETS mpt-opt EXPORT mpt DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/mpt-run DESTINATION ${CMAKE_INSTALL_BINDIR}) # a link to mpt-opt
endif()
install(EXPORT mpt NAMESPACE mpt:: DESTINATION ${package} FILE mptTargets.cmake)

install(DIRECTORY include/mpt-c DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES include/mpt/trainer.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mpt)
install(FILES cmake/mpt.f90 DESTINATION ${CMAKE_INSTALL_DATADIR}/mpt) # a source: module files are of one compiler
configure_package_config_file(cmake/mptConfig.cmake.in ${CMAKE_BINARY_DIR}/mptConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mptConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mptConfig.cmake ${CMAKE_BINARY_DIR}/mptConfigVersion.cmake DESTINATION ${package})

file(RELATIVE_PATH prefix_of_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/mpt.pc.in ${CMAKE_BINARY_DIR}/mpt.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/mpt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
