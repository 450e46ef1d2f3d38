// QUIRE_JIT_DUMP: bytes and annotated listing of every kernel.
#include "jit/listing.h"

#include <cstring>

#include "jit/kernels.h"
#include "jit/qk.h"
#include "tests/code_check.h"
#include "tests/profile_context.h"

namespace quire::test {
namespace {

std::string stem(const std::string& path) { return std::filesystem::path(path).stem().string(); }

bool has_instructions(const std::string& listing) {
    return listing.find("; bytes only: ") == std::string::npos;
}

// All bytes of a listing, in order.
std::vector<uint8_t> bytes_in(const std::string& listing) {
    std::vector<uint8_t> bytes;
    std::istringstream lines(listing);
    for (std::string line; std::getline(lines, line);) {
        if (line[0] == ';') continue;
        size_t offset = 0;
        char hex[64] = "";
        EXPECT_EQ(std::sscanf(line.c_str(), "%zx %63[0-9a-f]", &offset, hex), 2) << line;
        EXPECT_EQ(offset, bytes.size()) << line;
        for (const char* at = hex; at[0] != 0 && at[1] != 0; at += 2)
            bytes.push_back(uint8_t(std::stoi(std::string(at, 2), nullptr, 16)));
    }
    return bytes;
}

TEST(Listing, WrittenForEveryKernel) {
    if (!generates_code()) GTEST_SKIP() << "portable: there are no kernels to list";
    TemporaryDirectory directory;
    const Variable variable("QUIRE_JIT_DUMP", directory.path.c_str());
    LoggedContext logged;
    PmxCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK) << quire_last_error();
    const std::string explained = quire_plan_explain(plan);
    const std::vector<std::string> listings = files_below(directory.path, ".lst");
    EXPECT_GT(listings.size(), 10u);
    EXPECT_EQ(files_below(directory.path).size(), 2 * listings.size());
    size_t named = 0;
    for (const std::string& path : listings) {
        const std::string text = contents(path), bytes = contents(directory.path + "/" + stem(path) + ".bin");
        EXPECT_EQ(text.find("; " + stem(path) + ", " + std::to_string(bytes.size()) + " bytes\n"), 0u);
        const std::vector<uint8_t> listed = bytes_in(text);
        ASSERT_EQ(listed.size(), bytes.size()) << path;
        EXPECT_EQ(std::memcmp(listed.data(), bytes.data(), bytes.size()), 0) << path;
        named += explained.find(" " + stem(path)) != std::string::npos;
    }
    EXPECT_GT(named, 10u);
    EXPECT_TRUE(logged.lines.empty());
    quire_plan_destroy(plan);
}

// Of a target that this machine need not have.
std::string qk_listing(const char* target) {
    const jit::RowKey key{find_target(target), {QUIRE_INT8, 32, QUIRE_F16}, 64, 2};
    std::vector<uint8_t> bytes;
    jit::Notes notes;
    {
        const jit::CollectNotes collect(&notes);
        EXPECT_TRUE(jit::generate_qk(key, &bytes).ok());
    }
    std::vector<uint8_t> without;
    EXPECT_TRUE(jit::generate_qk(key, &without).ok());
    EXPECT_EQ(bytes, without);  // notes change no code
    return jit::listing(key.name("decode_qk"), bytes.data(), bytes.size(), notes);
}

TEST(Listing, HasStagesAndNamesOfRegisters) {
    for (const char* target : {"avx2", "avx512"}) {
        const std::string text = qk_listing(target);
        EXPECT_NE(text.find("; ---- tiles of "), std::string::npos) << text.substr(0, 1000);
        EXPECT_NE(text.find("; ---- sums\n"), std::string::npos);
        for (const char* name : {"acc0", "query", "scores"})
            EXPECT_NE(text.find(name), std::string::npos) << name;
        if (!can_decode()) continue;
        ASSERT_TRUE(has_instructions(text)) << text.substr(0, 300);
        const size_t at = text.find("vfmadd231ps");
        ASSERT_NE(at, std::string::npos);
        const std::string line = text.substr(at, text.find('\n', at) - at);
        EXPECT_NE(line.find(std::string(target) == "avx2" ? "ymm" : "zmm"), std::string::npos) << line;
        EXPECT_NE(line.find("; acc0, q, k0"), std::string::npos) << line;
    }
    if (!can_decode()) GTEST_SKIP() << "Zydis was not found: LISTINGS WERE ONLY SEEN WITHOUT INSTRUCTIONS";
}

TEST(Listing, ThatCannotBeWrittenIsSaidOnce) {
    if (!generates_code()) GTEST_SKIP() << "portable: there are no kernels to list";
    TemporaryDirectory directory;
    const std::string gone = directory.path + "/gone";
    std::filesystem::create_directory(gone);
    const Variable variable("QUIRE_JIT_DUMP", gone.c_str());
    LoggedContext logged;
    std::filesystem::remove(gone);
    AttentionCall().result(logged.context);  // works
    ASSERT_EQ(logged.lines.size(), 1u);
    EXPECT_EQ(logged.lines[0],
              "quire: QUIRE_JIT_DUMP: can't write to " + gone + ": No such file or directory");
}

TEST(Listing, NoDirectoryIsAnError) {
    const Variable variable("QUIRE_JIT_DUMP", "/nonexistent");
    expect_no_context("QUIRE_JIT_DUMP is \"/nonexistent\": must be a directory that can be written to");
}

}  // namespace
}  // namespace quire::test
