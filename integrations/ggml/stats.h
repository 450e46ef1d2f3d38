// What QUIRE_VERBOSE=1 tells when the program ends: calls by what they were and by who computed them, with
// times.
#pragma once
#include "problem.h"

namespace quire_ggml {

// QUIRE_VERBOSE is 1 or more.
bool is_verbose();

int64_t now();  // ns

// Of one call, by one thread.
void count_run(const Problem& problem, const quire_run* run, int64_t nanoseconds);
void count_original(const Reason& reason);

// One line on stderr.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace quire_ggml
