// Instructions that wait for others to stand beside: a processor that gets all of one kind at once has some
// of its pipes idle, and does not look far enough ahead to find the next kind.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "jit/emitter.h"

namespace quire::jit {

class Steps {
public:
    explicit Steps(Emitter& e) : e_(e) {}

    // An instruction or two, which take one register at most that they do not give back.
    void add(std::function<void()> step) { steps_.push_back(std::move(step)); }

    // On occasion i of n, from 0 on, those that are due by then, but for those that would leave fewer than
    // `spare` registers free.
    void on_occasion(int i, int n, int spare) {
        const size_t due = steps_.size() * size_t(i + 1) / size_t(n);
        const size_t most = done_ + steps_.size() / size_t(n) + 2;  // what is late comes bit by bit
        while (done_ < std::min(due, most) && e_.free_vecs() > spare) next();
    }
    void finish() {
        while (done_ < steps_.size()) next();
        steps_.clear();
        done_ = 0;
    }

private:
    void next() { steps_[done_++](); }

    Emitter& e_;
    std::vector<std::function<void()>> steps_;
    size_t done_ = 0;
};

}  // namespace quire::jit
