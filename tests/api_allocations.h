// Counts and refuses memory that a thread asks for. The test program's own operator new and malloc do it, so
// it holds for the library linked into it, and for the C and C++ libraries below.
#pragma once
#include <cstdint>

namespace quire::test {

// While one lives, what this thread allocates is counted.
class CountAllocations {
public:
    CountAllocations();
    ~CountAllocations();
    CountAllocations(const CountAllocations&) = delete;
    int64_t count() const;
};

// While one lives, operator new of this thread throws std::bad_alloc: allocation number `first` (from 0), and
// those after it too where `all_after`.
class RefuseAllocations {
public:
    RefuseAllocations(int64_t first, bool all_after);
    ~RefuseAllocations();
    RefuseAllocations(const RefuseAllocations&) = delete;
    bool refused() const;  // it came to that
};

}  // namespace quire::test
