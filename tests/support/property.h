// Tests on random cases, by rapidcheck: which case failed, made as small as it still fails, and how to run it
// again. The same cases every time, so that a check that fails fails again; QUIRE_RANDOM_TESTS=1 draws
// others, and RC_PARAMS ("max_success=1000", "reproduce=..." as a failure prints it) is rapidcheck's own.
#pragma once
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/support/run.h"

namespace quire::test {

// QUIRE_PROPERTY(Suite, Name, 100) { const Case c = *cases(...); ... RC_ASSERT(...); }
#define QUIRE_PROPERTY(suite, name, count)                                                 \
    void suite##_##name##_property();                                                      \
    TEST(suite, name) { ::quire::test::check_property(suite##_##name##_property, count); } \
    void suite##_##name##_property()

void check_property(void (*property)(), int cases);

// Fails the property with the message.
void hold(const testing::AssertionResult& result);

// What all generated cases keep to, beyond being valid.
struct Draw {
    double most_multiplications = 3e5;  // portable and the reference take their time
    bool long_sequences = false;        // also such as are cut into ranges of keys and blocks of queries
    int most_sequences = 4;
    bool cached = false;   // no more queries than keys, and a cache (no dense keys) that append can write
    bool options = true;   // masks, windows, ...; else none
    bool by_token = true;  // also options that depend on the place in the batch or of a query in its
                           // sequence: decoding_batches, masks, trees, query_positions, key ranges
};

// Lengths around page borders, D 1 to 640, all formats, placements and options.
rc::Gen<Case> cases(const Draw& draw = {});
// A target, and threads or slices.
rc::Gen<Way> ways();
// How a case lies in memory, and nothing else about it, changed.
void move_in_memory(Case* c);

std::ostream& operator<<(std::ostream& out, const Way& way);

}  // namespace quire::test
