# find_package(quire) gives quire::quire (shared) and quire::quire_static; pkg-config knows `quire`.
include(CMakePackageConfigHelpers)

set(quire_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quire)

install(TARGETS quire quire_static EXPORT quire_targets)
install(FILES include/quire/quire.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire)
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT quire_targets NAMESPACE quire:: DESTINATION ${quire_package_dir})

configure_package_config_file(cmake/quire-config.cmake.in quire-config.cmake
    INSTALL_DESTINATION ${quire_package_dir})
write_basic_package_version_file(quire-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/quire-config.cmake ${PROJECT_BINARY_DIR}/quire-config-version.cmake
    DESTINATION ${quire_package_dir})

# Relative to the file itself, so that the installation can be moved.
set(quire_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH quire_prefix_from_pc /${quire_pc_dir} /)
configure_file(cmake/quire.pc.in quire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/quire.pc DESTINATION ${quire_pc_dir})
