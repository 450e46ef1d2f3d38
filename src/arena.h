// oneTBB's threads, and what a fork does with them.
#pragma once
#include <functional>
#include <memory>

namespace quire {

// The threads of one executor, made on first use. A child process has none of its parent's threads, only the
// locks that they held: so fork first ends oneTBB's threads, and both processes make new ones when they need
// them. Where that can't be, because a thread of the program is at work in oneTBB or may come back to it, the
// child never uses oneTBB.
class Arena {
public:
    explicit Arena(int threads);
    ~Arena();
    Arena(const Arena&) = delete;

    // body() in the arena; false where this process must not use oneTBB, and nothing was done.
    bool execute(const std::function<void()>& body);

private:
    friend class ArenaList;
    struct Threads;
    struct Use;

    const int count_;
    std::unique_ptr<Threads> threads_;
    int users_ = 0;
};

}  // namespace quire
