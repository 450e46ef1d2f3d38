// quire_cache_alloc and quire_cache_free.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "quire/quire.h"

namespace quire::test {
namespace {

constexpr size_t kPage = size_t(2) << 20;

// Whether /proc/self/smaps says that the mapping at `memory` may be of huge pages ("hg" in VmFlags).
std::string flags_of(const void* memory) {
    std::ifstream maps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin, end;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2 && line.find(':') > line.find('-'))
            here = begin <= reinterpret_cast<uintptr_t>(memory) && reinterpret_cast<uintptr_t>(memory) < end;
        if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
    }
    return "";
}

bool is_mapped(void* memory) {
    unsigned char in_core;
    return mincore(memory, 1, &in_core) == 0;
}

TEST(CacheMemory, ZeroedAlignedWritableAndGivenBack) {
    for (const size_t bytes : {size_t(1), size_t(4096), kPage - 1, kPage, kPage + 1, 5 * kPage}) {
        void* memory = nullptr;
        ASSERT_EQ(quire_cache_alloc(bytes, &memory), QUIRE_OK) << quire_last_error();
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kPage, 0u);
        char* const first = static_cast<char*>(memory);
        EXPECT_TRUE(std::all_of(first, first + bytes, [](char c) { return c == 0; }));
        std::fill(first, first + bytes, char(1));
        void* const last = first + (bytes - 1) / kPage * kPage;
        EXPECT_EQ(quire_cache_free(memory, bytes), QUIRE_OK) << quire_last_error();
        EXPECT_FALSE(is_mapped(first));
        EXPECT_FALSE(is_mapped(last));
    }
}

TEST(CacheMemory, AsksForHugePages) {
    const std::string own = [] {
        std::ifstream enabled("/sys/kernel/mm/transparent_hugepage/enabled");
        std::string text;
        std::getline(enabled, text);
        return text;
    }();
    void* memory = nullptr;
    ASSERT_EQ(quire_cache_alloc(kPage, &memory), QUIRE_OK) << quire_last_error();
    const std::string flags = flags_of(memory);
    EXPECT_EQ(quire_cache_free(memory, kPage), QUIRE_OK);
    if (own.empty()) GTEST_SKIP() << "this kernel has no transparent huge pages";
    EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}

// In a child, whose limits and settings are its own.
template <typename Body>
int exit_code_of(const Body& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CacheMemory, NeedsNoHugePages) {
    EXPECT_EQ(exit_code_of([] {
                  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) return 1;
                  void* memory = nullptr;
                  if (quire_cache_alloc(3 * kPage, &memory) != QUIRE_OK) return 2;
                  static_cast<char*>(memory)[3 * kPage - 1] = 1;
                  return quire_cache_free(memory, 3 * kPage) == QUIRE_OK ? 0 : 3;
              }),
              0);
}

TEST(CacheMemory, OutOfMemoryIsAnError) {
    EXPECT_EQ(exit_code_of([] {
                  const rlimit limit = {size_t(1) << 34, size_t(1) << 34};
                  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
                  void* memory = &memory;
                  if (quire_cache_alloc(size_t(1) << 36, &memory) != QUIRE_OUT_OF_MEMORY) return 2;
                  return memory == &memory ? 0 : 3;
              }),
              0);
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - kPage, size_t(1) << 63}) {
        void* memory = nullptr;
        EXPECT_EQ(quire_cache_alloc(bytes, &memory), QUIRE_OUT_OF_MEMORY);
        EXPECT_EQ(quire_last_error(), "bytes is " + std::to_string(bytes) + ": no address space has so much");
        EXPECT_EQ(memory, nullptr);
    }
}

TEST(CacheMemory, WrongCalls) {
    void* memory = nullptr;
    EXPECT_EQ(quire_cache_alloc(1, nullptr), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "memory is NULL: must point at a void*");
    EXPECT_EQ(quire_cache_alloc(0, &memory), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "bytes is 0: must be at least 1");
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(quire_cache_free(nullptr, 0), QUIRE_OK);
    EXPECT_EQ(quire_cache_free(nullptr, 7), QUIRE_OK);
    ASSERT_EQ(quire_cache_alloc(10, &memory), QUIRE_OK);
    EXPECT_EQ(quire_cache_free(memory, 0), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "bytes is 0: must be at least 1");
    EXPECT_EQ(quire_cache_free(static_cast<char*>(memory) + 4096, 10), QUIRE_INVALID_ARGUMENT);
    EXPECT_NE(
        std::string(quire_last_error()).find("must be what quire_cache_alloc gave, a multiple of 2 MiB"),
        std::string::npos);
    static_cast<char*>(memory)[9] = 1;  // still there
    EXPECT_EQ(quire_cache_free(memory, 10), QUIRE_OK);
}

}  // namespace
}  // namespace quire::test
