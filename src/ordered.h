// The order that oneTBB keeps, told to the thread sanitizer.
#pragma once
#include <utility>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace quire {

// The body of a task: it begins after what stands before its making, and ends before what follows done().
// oneTBB sees to that, but is not built for the thread sanitizer, which does not see it. Nothing in any other
// build.
template <typename Body>
class Ordered {
public:
    explicit Ordered(Body body) : body_(std::move(body)) { give(begun_); }
    Ordered(const Ordered&) = delete;

    template <typename... Args>
    void operator()(Args... args) const {
        take(begun_);  // before anything is read, body_ too
        body_(args...);
        give(ended_);
    }
    void done() const { take(ended_); }

private:
#ifdef __SANITIZE_THREAD__
    static void give(const char& what) { __tsan_release(const_cast<char*>(&what)); }
    static void take(const char& what) { __tsan_acquire(const_cast<char*>(&what)); }
#else
    static void give(const char&) {}
    static void take(const char&) {}
#endif

    const Body body_;
    const char begun_ = 0, ended_ = 0;  // addresses only
};

}  // namespace quire
