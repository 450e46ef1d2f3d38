// Which instructions a call executes, and how often.
#pragma once
#include <cstdint>
#include <functional>
#include <map>

namespace bench {

// Executes `call` instruction by instruction in the calling thread, by the processor's trap flag: some
// microseconds each. Address -> how often it was executed; what other threads do is not seen. Empty where the
// system does not let a process trap itself, or `call` has more addresses than there is room for.
std::map<uintptr_t, int64_t> count_steps(const std::function<void()>& call);

}  // namespace bench
