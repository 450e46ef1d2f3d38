// QUIRE_PERF: Linux perf is told the name of every kernel, and where it is.
#include <elf.h>

#include <cinttypes>
#include <cstring>
#include <map>
#include <set>

#include "jit/vtune.h"
#include "tests/code_maps.h"
#include "tests/profile_context.h"

namespace quire::test {
namespace {

struct Named {
    uintptr_t begin;
    size_t size;
    std::string code;  // jitdump only
};
using Names = std::map<std::string, Named>;

std::string map_path(pid_t process) { return "/tmp/perf-" + std::to_string(process) + ".map"; }

// As perf reads it: hexadecimal START and SIZE, then the name up to the end of the line.
Names read_map(pid_t process) {
    Names names;
    std::istringstream lines(contents(map_path(process)));
    for (std::string line; std::getline(lines, line);) {
        uintptr_t begin = 0;
        size_t size = 0;
        int name = 0;
        EXPECT_EQ(std::sscanf(line.c_str(), "%" SCNxPTR " %zx %n", &begin, &size, &name), 2) << line;
        EXPECT_TRUE(names.insert({line.substr(size_t(name)), {begin, size, ""}}).second) << line;
    }
    return names;
}

// "attention kernels: a b c" of a plan.
std::vector<std::string> kernels_of(const quire_plan* plan) {
    std::vector<std::string> found;
    std::istringstream lines(quire_plan_explain(plan));
    for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find(" kernels: ");
        if (at == std::string::npos) continue;
        std::istringstream words(line.substr(at + 10));
        for (std::string word; words >> word;) found.push_back(word);
    }
    return found;
}

// Every kernel of the plan has a name, in executable pages.
void expect_covers(const quire_plan* plan, const Names& names) {
    const std::vector<std::string> kernels = kernels_of(plan);
    EXPECT_GT(kernels.size(), 5u);
    for (const std::string& kernel : kernels) EXPECT_EQ(names.count(kernel), 1u) << kernel;
    for (const auto& [name, at] : names) {
        EXPECT_GT(at.size, 0u) << name;
        EXPECT_EQ(rights_at(reinterpret_cast<void*>(at.begin)), "r-xp") << name;
        EXPECT_EQ(rights_at(reinterpret_cast<void*>(at.begin + at.size - 1)), "r-xp") << name;
    }
}

// Executable pages, but those of a jitdump's mark.
std::set<uintptr_t> executable_pages() {
    std::set<uintptr_t> pages;
    for (const Mapping& m : mappings())
        if (m.executable() && m.line.find(".dump") == std::string::npos)
            for (uintptr_t page = m.begin; page < m.end; page += 4096) pages.insert(page);
    return pages;
}

// Each page that the process has and did not have before is of one kernel.
void expect_names_cover(const std::set<uintptr_t>& before, const Names& names) {
    size_t pages = 0, named = 0;
    for (const uintptr_t page : executable_pages()) {
        if (before.count(page) != 0) continue;
        ++pages;
        for (const auto& [name, at] : names) named += at.begin < page + 4096 && page < at.begin + at.size;
    }
    EXPECT_GT(pages, 0u);
    EXPECT_EQ(named, pages);
}

class Perf : public testing::Test {
protected:
    void SetUp() override {
        if (!generates_code()) GTEST_SKIP() << "portable: there are no kernels to name";
        unlink(map_path(getpid()).c_str());
    }
    void TearDown() override { unlink(map_path(getpid()).c_str()); }
};

TEST_F(Perf, MapNamesEveryKernel) {
    const Variable variable("QUIRE_PERF", "map");
    const std::set<uintptr_t> before = executable_pages();
    LoggedContext logged;
    PmxCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(call.run(plan), QUIRE_OK);
    const Names names = read_map(getpid());
    expect_covers(plan, names);
    expect_names_cover(before, names);
    EXPECT_TRUE(logged.lines.empty());
    quire_plan_destroy(plan);
}

TEST_F(Perf, MapIsAppendedTo) {
    const Variable variable("QUIRE_PERF", "map");
    std::ofstream(map_path(getpid())) << "1000 10 of somebody else\n";
    LoggedContext first, second;
    AttentionCall one;
    AppendCall other;
    one.result(first.context);
    const size_t lines = read_map(getpid()).size();
    other.result(second.context);
    const Names names = read_map(getpid());
    EXPECT_GT(names.size(), lines);
    EXPECT_EQ(names.count("of somebody else"), 1u);
}

// Its name is known to everybody who can write to its directory.
TEST_F(Perf, MapDoesNotFollowALink) {
    const Variable variable("QUIRE_PERF", "map");
    TemporaryDirectory directory;
    const std::string target = directory.path + "/target";
    ASSERT_EQ(symlink(target.c_str(), map_path(getpid()).c_str()), 0);
    LoggedContext logged;
    AttentionCall().result(logged.context);  // works
    EXPECT_FALSE(std::filesystem::exists(target));
    ASSERT_EQ(logged.lines.size(), 1u);
    EXPECT_EQ(logged.lines[0].find("quire: QUIRE_PERF: can't open " + map_path(getpid()) + ": "), 0u)
        << logged.lines[0];
}

TEST_F(Perf, NothingUnlessAskedFor) {
    for (const char* value : {static_cast<const char*>(nullptr), ""}) {
        const Variable variable("QUIRE_PERF", value);
        LoggedContext logged;
        AttentionCall().result(logged.context);
        EXPECT_FALSE(std::filesystem::exists(map_path(getpid())));
    }
}

TEST_F(Perf, UnknownValueIsAnError) {
    const Variable variable("QUIRE_PERF", "maps");
    expect_no_context(
        std::string("QUIRE_PERF is \"maps\": must be map or jitdump") +
        (jit::has_vtune() ? ", or vtune" : "; vtune needs a library that was configured with QUIRE_VTUNE"));
}

// ---- jitdump ----

template <typename T>
T take(const std::string& bytes, size_t* at) {
    T value{};
    EXPECT_LE(*at + sizeof value, bytes.size());
    if (*at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + *at, sizeof value);
    *at += sizeof value;
    return value;
}

// Field by field as the specification has them.
Names read_jitdump(const std::string& path, pid_t process) {
    Names names;
    const std::string bytes = contents(path);
    size_t at = 0;
    EXPECT_EQ(take<uint32_t>(bytes, &at), 0x4a695444u);
    EXPECT_EQ(take<uint32_t>(bytes, &at), 1u);
    EXPECT_EQ(take<uint32_t>(bytes, &at), 40u);
    EXPECT_EQ(take<uint32_t>(bytes, &at), uint32_t(EM_X86_64));
    take<uint32_t>(bytes, &at);
    EXPECT_EQ(take<uint32_t>(bytes, &at), uint32_t(process));
    uint64_t last = take<uint64_t>(bytes, &at);
    EXPECT_EQ(take<uint64_t>(bytes, &at), 0u);
    for (uint64_t index = 0; at < bytes.size(); ++index) {
        const size_t begin = at;
        EXPECT_EQ(take<uint32_t>(bytes, &at), 0u);
        const size_t end = begin + take<uint32_t>(bytes, &at);
        const uint64_t time = take<uint64_t>(bytes, &at);
        EXPECT_GE(time, last);
        last = time;
        EXPECT_EQ(take<uint32_t>(bytes, &at), uint32_t(process));
        EXPECT_EQ(take<uint32_t>(bytes, &at), uint32_t(process));  // its only thread
        const auto vma = take<uint64_t>(bytes, &at), address = take<uint64_t>(bytes, &at);
        EXPECT_EQ(vma, address);
        const auto size = take<uint64_t>(bytes, &at);
        EXPECT_EQ(take<uint64_t>(bytes, &at), index);
        const std::string name(bytes.c_str() + at);
        at += name.size() + 1;
        EXPECT_EQ(at + size, end) << name;
        if (at + size != end || end > bytes.size()) return names;
        names[name] = {uintptr_t(address), size_t(size), bytes.substr(at, size_t(size))};
        at = end;
    }
    return names;
}

std::string jitdump_of(const std::string& directory, pid_t process) {
    const std::vector<std::string> found =
        files_below(directory, "/jit-" + std::to_string(process) + ".dump");
    EXPECT_EQ(found.size(), 1u);
    return found.size() == 1 ? found[0] : "";
}

TEST_F(Perf, JitdumpHasEveryKernelAndItsCode) {
    TemporaryDirectory directory;
    const Variable variable("QUIRE_PERF", "jitdump"), home("JITDUMPDIR", directory.path.c_str());
    const std::set<uintptr_t> before = executable_pages();
    LoggedContext logged;
    PmxCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(call.run(plan), QUIRE_OK);
    const std::string path = jitdump_of(directory.path, getpid());
    const Names names = read_jitdump(path, getpid());
    expect_covers(plan, names);
    expect_names_cover(before, names);
    for (const auto& [name, at] : names)
        EXPECT_EQ(std::memcmp(at.code.data(), reinterpret_cast<void*>(at.begin), at.size), 0) << name;
    // How perf record learns of the file.
    bool marked = false;
    for (const Mapping& m : mappings()) marked |= m.executable() && m.line.find(path) != std::string::npos;
    EXPECT_TRUE(marked);
    EXPECT_TRUE(logged.lines.empty());
    quire_plan_destroy(plan);
}

TEST_F(Perf, JitdumpThatCannotBeWrittenIsSaidOnce) {
    const Variable variable("QUIRE_PERF", "jitdump"), home("JITDUMPDIR", "/nonexistent");
    LoggedContext logged;
    AttentionCall().result(logged.context);  // works
    ASSERT_EQ(logged.lines.size(), 1u);
    EXPECT_EQ(logged.lines[0].find("quire: QUIRE_PERF: can't make /nonexistent/quire-jit-"), 0u)
        << logged.lines[0];
}

// ---- fork ----

// A child's own file names what it inherited and what it made; the parent's stays as it was.
void check_child(const std::string& directory) {
    LoggedContext logged;
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK) << quire_last_error();
    const auto names_of = [&](pid_t process) {
        return directory.empty() ? read_map(process) : read_jitdump(jitdump_of(directory, process), process);
    };
    const Names parents = names_of(getpid());
    const pid_t parent = getpid();
    expect_true_in_child([&] {
        AttentionCall other;
        other.desc.logits_soft_cap = 3;  // kernels that the parent does not have
        other.result(logged.context);
        const Names childs = names_of(getpid());
        bool good = childs.size() > parents.size() && names_of(parent).size() == parents.size();
        for (const auto& [name, at] : parents)
            good &= childs.count(name) && childs.at(name).begin == at.begin;
        unlink(map_path(getpid()).c_str());
        return good && !testing::Test::HasFailure();
    });
    EXPECT_EQ(names_of(getpid()).size(), parents.size());
    quire_plan_destroy(plan);
}

TEST_F(Perf, ChildHasAMapOfItsOwn) {
    const Variable variable("QUIRE_PERF", "map");
    check_child("");
}

TEST_F(Perf, ChildHasAJitdumpOfItsOwn) {
    TemporaryDirectory directory;
    const Variable variable("QUIRE_PERF", "jitdump"), home("JITDUMPDIR", directory.path.c_str());
    check_child(directory.path);
}

// ---- with perf itself ----

// What the next tests record: QUIRE_PERF is set from outside.
TEST(PerfWork, DISABLED_Decode) {
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(nullptr, &plan), QUIRE_OK);
    std::printf("process %d\n", int(getpid()));
    for (int i = 0; i < 100000; ++i) ASSERT_EQ(call.run(plan), QUIRE_OK);
    quire_plan_destroy(plan);
}

// What a command prints; "" and *status where it fails.
std::string output_of(const std::string& command, int* status) {
    std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    *status = pclose(pipe);
    return text;
}

class RealPerf : public Perf {
protected:
    void SetUp() override {
        Perf::SetUp();
        if (IsSkipped()) return;
        int status = 0;
        const std::string data = directory_.path + "/perf.data";
        const std::string said =
            output_of("perf record -q -e cpu-clock -k CLOCK_MONOTONIC -o " + data + " -- true", &status);
        if (status != 0) GTEST_SKIP() << "perf can't record here: NAMES WERE NOT SEEN BY PERF: " << said;
    }
    std::string recorded() const { return directory_.path + "/perf.data"; }
    void record(const char* format) {
        const Variable perf("QUIRE_PERF", format), home("JITDUMPDIR", directory_.path.c_str()),
            threads("QUIRE_NUM_THREADS", "1"), shards("GTEST_TOTAL_SHARDS", "1"),
            shard("GTEST_SHARD_INDEX", "0");
        int status = 0;
        const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
        const std::string said =
            output_of("perf record -q -e cpu-clock -k CLOCK_MONOTONIC -o " + recorded() + " -- " + self +
                          " --gtest_also_run_disabled_tests --gtest_filter=PerfWork.*",
                      &status);
        ASSERT_EQ(status, 0) << said;
        const size_t at = said.find("process ");
        ASSERT_NE(at, std::string::npos) << said;
        recorded_process_ = std::atoi(said.c_str() + at + 8);
    }
    std::string report(const std::string& data) {
        int status = 0;
        const std::string text = output_of("perf report --stdio -F symbol -i " + data, &status);
        EXPECT_EQ(status, 0) << text;
        return text;
    }
    TemporaryDirectory directory_;
    int recorded_process_ = 0;
};

TEST_F(RealPerf, ReportShowsTheNamesOfTheMap) {
    record("map");
    const std::string text = report(recorded());
    EXPECT_NE(text.find("decode_qk_d16_r"), std::string::npos) << text;
    unlink(map_path(recorded_process_).c_str());
}

TEST_F(RealPerf, InjectedJitdumpIsAnnotated) {
    record("jitdump");
    int status = 0;
    const std::string injected = directory_.path + "/injected.data";
    const std::string said = output_of("perf inject --jit -i " + recorded() + " -o " + injected, &status);
    ASSERT_EQ(status, 0) << said;
    const std::string text = report(injected);
    const size_t at = text.find("decode_qk_d16_r");
    ASSERT_NE(at, std::string::npos) << text;
    const std::string name = text.substr(at, text.find_first_of(" \n", at) - at);
    const std::string listing = output_of("perf annotate --stdio -i " + injected + " -s " + name, &status);
    EXPECT_EQ(status, 0);
    EXPECT_NE(listing.find("vfmadd231ps"), std::string::npos) << said << listing;
}

}  // namespace
}  // namespace quire::test
