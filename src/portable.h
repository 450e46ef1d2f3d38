// The definition, in plain C++ and double precision: readable, any x86-64, and what every generated kernel is
// tested against. Also the last resort of select.
#pragma once
#include "src/problem.h"

namespace quire::portable {

// Query i of sequence b, head h: writes its output row and lse.
void attend_row(const AttentionProblem& problem, int64_t b, int64_t i, int h);

// New token i of sequence b, kv head h: key and value.
void append_row(const AppendProblem& problem, int64_t b, int64_t i, int h);

// Position t of sequence b, kv head h: key and value, each to `repeat` heads.
void read_row(const ReadProblem& problem, int64_t b, int64_t t, int h);

}  // namespace quire::portable
