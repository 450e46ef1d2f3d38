#include "bench/generated.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace bench {
namespace {

namespace fs = std::filesystem;

fs::path map_path() { return "/tmp/perf-" + std::to_string(getpid()) + ".map"; }  // where perf looks for it

// What is to be removed in the end; empty: nothing.
struct OwnFiles {
    fs::path map, listings;
    ~OwnFiles() {
        std::error_code ignored;
        if (!map.empty()) fs::remove(map, ignored);
        if (!listings.empty()) fs::remove_all(listings, ignored);
    }
} own_files;

// "   102  c4627d216308  vpmovsxbd ymm12, qword ptr [rbx+0x08]  ; names": offset, bytes, instruction.
void read_listing(const fs::path& path, std::map<uintptr_t, std::string>* instructions) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == ';') continue;
        std::istringstream words(line.substr(0, line.find(" ; ")));
        uintptr_t offset = 0;
        std::string bytes, text;
        if (!(words >> std::hex >> offset >> bytes) || !std::getline(words >> std::ws, text)) continue;
        (*instructions)[offset] = text.substr(0, text.find_last_not_of(' ') + 1);
    }
}

}  // namespace

void watch_generated_code() {
    if (!getenv("QUIRE_PERF")) {
        setenv("QUIRE_PERF", "map", 1);
        own_files.map = map_path();
    }
    if (!getenv("QUIRE_JIT_DUMP")) {
        std::string directory = (fs::temp_directory_path() / "quire-bench-XXXXXX").string();
        if (!mkdtemp(directory.data())) return;
        setenv("QUIRE_JIT_DUMP", directory.c_str(), 1);
        own_files.listings = directory;
    }
}

std::map<uintptr_t, GeneratedKernel> generated_kernels() {
    std::map<uintptr_t, GeneratedKernel> kernels;
    std::ifstream file(map_path());
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        GeneratedKernel kernel;
        if (!(words >> std::hex >> kernel.address >> kernel.size >> kernel.name)) continue;
        kernels[kernel.address] = kernel;  // the last that was there
    }
    return kernels;
}

const std::map<uintptr_t, std::string>& instructions_of(const GeneratedKernel& kernel) {
    static std::map<std::string, std::map<uintptr_t, std::string>> listings;
    const auto [at, is_new] = listings.try_emplace(kernel.name);
    const char* const directory = getenv("QUIRE_JIT_DUMP");
    if (is_new && directory) read_listing(fs::path(directory) / (kernel.name + ".lst"), &at->second);
    return at->second;
}

}  // namespace bench
