// Code memory: each way of publishing, and never a page that is writable and executable.
#include "jit/code_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "quire/quire.h"
#include "tests/code_maps.h"
#include "tests/code_refuse.h"

namespace quire::test {
namespace {

using jit::CodeMemory;
using jit::Publication;

const std::vector<uint8_t> kReturn42 = {0xb8, 42, 0, 0, 0, 0xc3};  // mov eax, 42; ret

int call(const CodeMemory& memory) {
    return reinterpret_cast<int (*)()>(reinterpret_cast<uintptr_t>(memory.entry()))();
}

size_t open_files() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        count += !entry.path().empty();
    return count;
}

void check_way(Publication way) {
    const void* entry = nullptr;
    {
        CodeMemory memory;
        const Status status = CodeMemory::publish_by(way, kReturn42.data(), kReturn42.size(), &memory);
        ASSERT_TRUE(status.ok()) << status.message();
        entry = memory.entry();
        EXPECT_EQ(memory.way(), way);
        EXPECT_GE(memory.size(), kReturn42.size());
        EXPECT_EQ(rights_at(entry), "r-xp");
        EXPECT_EQ(call(memory), 42);
    }
    EXPECT_NE(rights_at(entry), "r-xp") << "still mapped";
}

TEST(CodeMemory, Mapping) { check_way(Publication::mapping); }
TEST(CodeMemory, Memfd) { check_way(Publication::memfd); }

TEST(CodeMemory, MoveKeepsOneOwner) {
    CodeMemory first, second;
    ASSERT_TRUE(CodeMemory::publish(kReturn42.data(), kReturn42.size(), &first).ok());
    const void* entry = first.entry();
    second = std::move(first);
    EXPECT_EQ(second.entry(), entry);
    EXPECT_EQ(call(second), 42);
    second = CodeMemory();
    EXPECT_NE(rights_at(entry), "r-xp");
}

TEST(CodeMemory, KeepsNoFile) {
    const size_t before = open_files();
    std::vector<CodeMemory> kept(20);
    for (CodeMemory& memory : kept)
        ASSERT_TRUE(
            CodeMemory::publish_by(Publication::memfd, kReturn42.data(), kReturn42.size(), &memory).ok());
    EXPECT_EQ(open_files(), before);
}

TEST(CodeMemory, LargerThanAPage) {
    for (Publication way : {Publication::mapping, Publication::memfd}) {
        std::vector<uint8_t> code(3 * 4096 + 5, 0x90);  // nops up to a "mov eax, 42; ret" at the end
        std::copy(kReturn42.begin(), kReturn42.end(), code.end() - int(kReturn42.size()));
        CodeMemory memory;
        ASSERT_TRUE(CodeMemory::publish_by(way, code.data(), code.size(), &memory).ok());
        EXPECT_EQ(memory.size(), size_t(4 * 4096));
        EXPECT_EQ(call(memory), 42);
    }
}

TEST(CodeMemory, LadderFallsToMemfd) {
    Refuse one(1);
    CodeMemory memory;
    ASSERT_TRUE(CodeMemory::publish(kReturn42.data(), kReturn42.size(), &memory).ok());
    EXPECT_EQ(memory.way(), Publication::memfd);
    EXPECT_EQ(call(memory), 42);
}

TEST(CodeMemory, LadderEnds) {
    Refuse all(2);
    CodeMemory memory;
    const Status status = CodeMemory::publish(kReturn42.data(), kReturn42.size(), &memory);
    EXPECT_EQ(status.code(), QUIRE_UNSUPPORTED);
    EXPECT_EQ(status.message(),
              "code memory: mprotect to read+execute: Permission denied; "
              "code memory: memfd_create: Permission denied");
    EXPECT_EQ(memory.entry(), nullptr);
}

// Reads the maps in a loop until it is told to stop; keeps what was writable and executable.
class Scanner {
public:
    Scanner() : thread_([this] { scan(); }) {}
    ~Scanner() { stop(); }
    void stop() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    std::string found() const { return found_; }
    int scans() const { return scans_.load(); }

private:
    void scan() {
        do {
            for (const Mapping& m : mappings())
                if (m.writable() && m.executable()) found_ += m.line + "\n";
            ++scans_;
        } while (!stop_);
    }

    std::atomic<bool> stop_{false};
    std::atomic<int> scans_{0};
    std::string found_;
    std::thread thread_;
};

// Plans of many descriptors, each generating tens of kernels.
void generate_plans(int from, int to) {
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.log = [](void*, const char*) {};  // it will run on portable, and say so
    quire_context* context = nullptr;
    ASSERT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    for (int dim = from; dim < to; ++dim) {
        quire_attention_desc desc;
        quire_attention_desc_init(&desc);
        desc.num_heads = 2;
        desc.num_kv_heads = 1;
        desc.head_dim = dim;
        quire_plan* plan = nullptr;
        EXPECT_EQ(quire_attention_plan(context, &desc, &plan), QUIRE_OK) << quire_last_error();
        quire_plan_destroy(plan);
    }
    quire_context_destroy(context);
}

TEST(CodeMemory, NeverWritableAndExecutable) {
    for (int ways = 0; ways < 3; ++ways) {
        Refuse refuse(ways);
        Scanner scanner;
        std::thread other([] { generate_plans(20, 40); });
        do generate_plans(1, 20);
        while (scanner.scans() < 4);
        other.join();
        scanner.stop();
        EXPECT_EQ(scanner.found(), "");
    }
}

// The scan must be able to fail.
TEST(CodeMemory, ScannerCatches) {
    Scanner scanner;
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) GTEST_SKIP() << "this system refuses pages that are writable and executable";
    const int before = scanner.scans();
    while (scanner.scans() < before + 3) std::this_thread::yield();
    scanner.stop();
    munmap(page, 4096);
    EXPECT_NE(scanner.found(), "");
}

}  // namespace
}  // namespace quire::test
