# One executable. It links the static library because tests reach the private headers.
find_package(GTest REQUIRED)
find_package(rapidcheck CONFIG REQUIRED)
include(GoogleTest)

file(GLOB quire_test_sources CONFIGURE_DEPENDS tests/*.cc tests/*.c tests/support/*.cc)

add_executable(quire_tests ${quire_test_sources})
quire_compile_options(quire_tests)
target_include_directories(quire_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(quire_tests SYSTEM PRIVATE ${QUIRE_XBYAK_INCLUDE_DIR})
target_compile_definitions(quire_tests PRIVATE QUIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(quire_tests PRIVATE quire_static GTest::gtest GTest::gtest_main rapidcheck
    Threads::Threads)

# tests/*.c show that quire.h is C99.
set_target_properties(quire_tests PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
file(GLOB quire_c_test_sources CONFIGURE_DEPENDS tests/*.c)
set_source_files_properties(${quire_c_test_sources} PROPERTIES
    COMPILE_OPTIONS "-pedantic-errors;-Wall;-Wextra;-Wshadow")

# Some tests load the shared library beside the static one.
add_dependencies(quire_tests quire)
target_compile_definitions(quire_tests PRIVATE QUIRE_SHARED_LIBRARY="$<TARGET_FILE:quire>")
target_link_libraries(quire_tests PRIVATE ${CMAKE_DL_LIBS})

# Generated code is decoded where Zydis is there; without it those tests are skipped, and say so.
find_package(Zydis CONFIG QUIET)
if(Zydis_FOUND)
    target_compile_definitions(quire_tests PRIVATE QUIRE_HAVE_ZYDIS)
    target_link_libraries(quire_tests PRIVATE Zydis::Zydis)
else()
    message(WARNING "Zydis was not found (Debian: libzydis-dev): tests will not decode generated code")
endif()

# Takes the place of VTune's collector.
if(QUIRE_VTUNE)
    add_library(fake_vtune MODULE tests/programs/fake_vtune.cc)
    quire_compile_options(fake_vtune)
    set_target_properties(fake_vtune PROPERTIES CXX_VISIBILITY_PRESET default)
    target_include_directories(fake_vtune SYSTEM PRIVATE ${QUIRE_ITTAPI_INCLUDE_DIR})
    add_dependencies(quire_tests fake_vtune)
    target_compile_definitions(quire_tests PRIVATE QUIRE_FAKE_VTUNE="$<TARGET_FILE:fake_vtune>")
endif()

# PRE_TEST: the list is asked of the program when ctest starts, so that a build for another machine works.
gtest_discover_tests(quire_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 600)

# A program that has nothing of quire and oneTBB but what it loads. (The sanitizers can't be loaded later.)
if(NOT QUIRE_SANITIZE)
    add_executable(quire_reload tests/programs/reload.c)
    set_target_properties(quire_reload PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
    target_compile_options(quire_reload PRIVATE -pedantic-errors -Wall -Wextra -Wshadow)
    target_include_directories(quire_reload PRIVATE include)
    target_link_libraries(quire_reload PRIVATE ${CMAKE_DL_LIBS})
    add_dependencies(quire_reload quire)
    foreach(use inline threads)
        add_test(NAME reload_${use} COMMAND quire_reload $<TARGET_FILE:quire> ${use})
        set_tests_properties(reload_${use} PROPERTIES TIMEOUT 60)
    endforeach()
endif()

# libquire_ggml before a program whose ggml is as expected, or differs in one place. (The sanitizers want to be first.)
if(NOT QUIRE_SANITIZE AND QUIRE_GGML)
    add_library(fake_ggml SHARED tests/programs/fake_ggml.cc)
    add_executable(ggml_takeover tests/programs/ggml_takeover.cc)
    foreach(target fake_ggml ggml_takeover)
        quire_compile_options(${target})
        set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default)
        target_include_directories(${target} PRIVATE include ${PROJECT_SOURCE_DIR})
    endforeach()
    target_link_libraries(ggml_takeover PRIVATE fake_ggml Threads::Threads)
    add_dependencies(ggml_takeover quire_ggml)
    foreach(variant none types size strides operands parameters threads)
        add_test(NAME ggml_takeover_${variant} COMMAND ggml_takeover $<IF:$<STREQUAL:${variant},none>,taken,left>)
        set_tests_properties(ggml_takeover_${variant} PROPERTIES TIMEOUT 60
            ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:quire_ggml>;FAKE_GGML=${variant}")
    endforeach()
endif()
