// What /proc/self/maps says of the test's own process.
#pragma once
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace quire::test {

struct Mapping {
    uintptr_t begin, end;
    char rights[5];    // "r-xp"
    std::string line;  // as the kernel wrote it

    bool writable() const { return rights[1] == 'w'; }
    bool executable() const { return rights[2] == 'x'; }
};

inline std::vector<Mapping> mappings() {
    std::vector<Mapping> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        Mapping m{0, 0, "", line};
        unsigned long begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, m.rights) != 3) continue;
        m.begin = begin;
        m.end = end;
        found.push_back(m);
    }
    return found;
}

// Rights of the page at `address`, "" where nothing is mapped.
inline std::string rights_at(const void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (const Mapping& m : mappings())
        if (m.begin <= at && at < m.end) return m.rights;
    return "";
}

}  // namespace quire::test
