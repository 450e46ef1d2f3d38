// Tells Linux perf what generated code is called: a map of names (perf report), or a jitdump with the code
// itself (perf inject --jit, then perf annotate); or VTune (jit/vtune.h). docs/profiling.md shows them.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/code_cache.h"

namespace quire::jit {

enum class PerfFormat { none, map, jitdump, vtune };

// Of one context. After fork the child's code has a file of the child's own, which begins with what it
// inherited: perf looks files up by the process.
class PerfWriter {
public:
    explicit PerfWriter(PerfFormat format) : format_(format) {}
    ~PerfWriter();
    PerfWriter(const PerfWriter&) = delete;

    // A failure concerns the profile only.
    Status add(const std::shared_ptr<const Code>& code);

private:
    Status begin(int process);
    Status begin_jitdump(int process);
    Status write_map(const Code& code, int process) const;
    Status write_load(const Code& code, int process);
    void close_jitdump();

    const PerfFormat format_;
    std::mutex mutex_;
    std::vector<std::weak_ptr<const Code>> known_;
    int process_ = 0;  // that the file is of; 0: none yet
    // jitdump: the file, and the executable mapping of its first page, by which perf record learns of it.
    std::string path_;
    int file_ = -1;
    void* marker_ = nullptr;
    uint64_t index_ = 0;
};

}  // namespace quire::jit
