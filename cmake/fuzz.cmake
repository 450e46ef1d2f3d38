# libFuzzer's program; clang only. `./dev fuzz` configures it, with QUIRE_SANITIZE=address,undefined.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "QUIRE_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}")
endif()

# Counts which code of the library an input reaches. Inputs are decisions and not text to be compared, so that
# -fsanitize=fuzzer-no-link, which also traces comparisons, would only cost time.
target_compile_options(quire_objects PRIVATE -fsanitize-coverage=inline-8bit-counters,pc-table)

file(GLOB quire_fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*.cc)

add_executable(quire_fuzz ${quire_fuzz_sources})
quire_compile_options(quire_fuzz)
target_include_directories(quire_fuzz PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(quire_fuzz PRIVATE quire_static Threads::Threads)
target_link_options(quire_fuzz PRIVATE -fsanitize=fuzzer)
