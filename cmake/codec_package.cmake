# Installs codec/ and what it stands on as one CMake package: find_package(weir_codec), weir::codec.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(parts weir_base_stdx weir_codec_token weir_codec_conversation weir_codec_dialect
          weir_codec_template weir_codec_prompt weir_codec_stream)
add_library(weir_codec INTERFACE)
set_target_properties(weir_codec PROPERTIES EXPORT_NAME codec)
target_link_libraries(weir_codec INTERFACE ${parts})
target_compile_features(weir_codec INTERFACE cxx_std_20)
target_include_directories(weir_codec INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weir>)
if(WEIR_PLANTED)  # headers look at it
  target_compile_definitions(weir_codec INTERFACE WEIR_PLANTED=1)
endif()

install(TARGETS weir_codec ${parts} EXPORT weir_codec ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder codec base/stdx)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir/${folder}
          FILES_MATCHING PATTERN "*.h"
          PATTERN example EXCLUDE PATTERN testdata EXCLUDE)
endforeach()
set(place ${CMAKE_INSTALL_LIBDIR}/cmake/weir_codec)
install(EXPORT weir_codec NAMESPACE weir:: FILE weir_codec-targets.cmake DESTINATION ${place})
file(WRITE ${CMAKE_BINARY_DIR}/weir_codec-config.cmake
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl)
find_dependency(OpenSSL)
find_dependency(simdjson)
include(\${CMAKE_CURRENT_LIST_DIR}/weir_codec-targets.cmake)
")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/weir_codec-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/weir_codec-config.cmake
              ${CMAKE_BINARY_DIR}/weir_codec-config-version.cmake DESTINATION ${place})
