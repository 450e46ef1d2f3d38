#include "jit/perf.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "jit/vtune.h"

namespace quire::jit {
namespace {

Status failed(const char* step, const std::string& path) {
    return unsupported("%s %s: %s", step, path.c_str(), std::strerror(errno));
}

// One write: lines of several writers (another context, another library) do not mix.
bool write_all(int file, const iovec* parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; ++i) size += parts[i].iov_len;
    ssize_t written;
    do written = writev(file, parts, count);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && size_t(written) != size) errno = ENOSPC;
    return written >= 0 && size_t(written) == size;
}

iovec part(const void* data, size_t size) { return {const_cast<void*>(data), size}; }

uint64_t address_of(const Code& code) { return uint64_t(reinterpret_cast<uintptr_t>(code.memory.entry())); }

// The clock of `perf record -k CLOCK_MONOTONIC`.
uint64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

// ---- jitdump, as tools/perf/Documentation/jitdump-specification.txt of Linux has it ----

struct DumpHeader {
    uint32_t magic = 0x4a695444;  // "JiTD"
    uint32_t version = 1;
    uint32_t total_size = sizeof(DumpHeader);
    uint32_t elf_mach = EM_X86_64;
    uint32_t pad = 0;
    uint32_t pid;
    uint64_t timestamp = now();
    uint64_t flags = 0;
};
static_assert(sizeof(DumpHeader) == 40, "as perf reads it");

struct LoadRecord {
    uint32_t id = 0;  // JIT_CODE_LOAD
    uint32_t total_size;
    uint64_t timestamp = now();
    uint32_t pid, tid;
    uint64_t vma, address, size, index;
};
static_assert(sizeof(LoadRecord) == 56, "as perf reads it");

}  // namespace

PerfWriter::~PerfWriter() { close_jitdump(); }

Status PerfWriter::add(const std::shared_ptr<const Code>& code) {
    if (format_ == PerfFormat::none) return {};
    if (format_ == PerfFormat::vtune) {
        tell_vtune(*code);
        return {};
    }
    std::lock_guard<std::mutex> lock(mutex_);
    known_.erase(std::remove_if(known_.begin(), known_.end(), [](const auto& old) { return old.expired(); }),
                 known_.end());
    known_.push_back(code);
    const int process = getpid();
    if (process != process_) {
        QUIRE_TRY(begin(process));
        process_ = process;
        for (const std::weak_ptr<const Code>& weak : known_)
            if (const std::shared_ptr<const Code> old = weak.lock())
                QUIRE_TRY(format_ == PerfFormat::map ? write_map(*old, process) : write_load(*old, process));
        return {};
    }
    return format_ == PerfFormat::map ? write_map(*code, process) : write_load(*code, process);
}

Status PerfWriter::begin(int process) {
    return format_ == PerfFormat::jitdump ? begin_jitdump(process) : Status();
}

// ---- map ----

// Appended: other generators of code in the process (a Python, another copy of this library) use the same
// file. Its name is fixed by perf and its directory is everybody's: a link is not followed.
Status PerfWriter::write_map(const Code& code, int process) const {
    const std::string path = "/tmp/perf-" + std::to_string(process) + ".map";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return failed("can't open", path);
    char range[40];
    std::snprintf(range, sizeof range, "%llx %zx ", (unsigned long long)address_of(code), code.code_size);
    const std::string line = range + code.name + "\n";
    const iovec whole = part(line.data(), line.size());
    Status status;
    if (!write_all(file, &whole, 1)) status = failed("can't write", path);
    close(file);
    return status;
}

// ---- jitdump ----

// In a directory of its own, so that neither a file left by an older process nor a second writer is in the
// way; perf knows it by its name jit-PID.dump and puts its own files beside it.
Status PerfWriter::begin_jitdump(int process) {
    close_jitdump();  // the parent's, where this is a child
    index_ = 0;
    const char* home = std::getenv("JITDUMPDIR");
    const std::string pattern = std::string(home != nullptr && *home != 0 ? home : "/tmp") + "/quire-jit-" +
                                std::to_string(process) + "-XXXXXX";
    std::string directory = pattern;
    if (mkdtemp(&directory[0]) == nullptr) return failed("can't make", pattern);
    path_ = directory + "/jit-" + std::to_string(process) + ".dump";
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (file_ < 0) return failed("can't open", path_);
    DumpHeader header;
    header.pid = uint32_t(process);
    const iovec whole = part(&header, sizeof header);
    if (!write_all(file_, &whole, 1)) return failed("can't write", path_);
    void* marker = mmap(nullptr, size_t(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0);
    if (marker == MAP_FAILED) return failed("can't map to read+execute", path_);
    marker_ = marker;
    return {};
}

Status PerfWriter::write_load(const Code& code, int process) {
    LoadRecord record;
    record.total_size = uint32_t(sizeof record + code.name.size() + 1 + code.code_size);
    record.pid = uint32_t(process);
    record.tid = uint32_t(syscall(SYS_gettid));
    record.vma = record.address = address_of(code);
    record.size = code.code_size;
    record.index = index_++;
    const iovec parts[] = {part(&record, sizeof record), part(code.name.c_str(), code.name.size() + 1),
                           part(code.memory.entry(), code.code_size)};
    return write_all(file_, parts, 3) ? Status() : failed("can't write", path_);
}

void PerfWriter::close_jitdump() {
    if (marker_ != nullptr) munmap(marker_, size_t(sysconf(_SC_PAGESIZE)));
    if (file_ >= 0) close(file_);
    marker_ = nullptr;
    file_ = -1;
}

}  // namespace quire::jit
