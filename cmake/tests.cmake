# One executable. It links the static library because tests reach the private headers.
find_package(GTest REQUIRED)
include(GoogleTest)

file(GLOB quire_test_sources CONFIGURE_DEPENDS tests/*.cc tests/support/*.cc)

add_executable(quire_tests ${quire_test_sources})
quire_compile_options(quire_tests)
target_include_directories(quire_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(quire_tests SYSTEM PRIVATE ${QUIRE_XBYAK_INCLUDE_DIR})
target_compile_definitions(quire_tests PRIVATE QUIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(quire_tests PRIVATE quire_static GTest::gtest GTest::gtest_main Threads::Threads)

# PRE_TEST: the list is asked of the program when ctest starts, so that a build for another machine works.
gtest_discover_tests(quire_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 600)
