// A call of quire_append on the cache of a Case: the last `queries` positions of each sequence are new.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/support/run.h"

namespace quire::test {

class Append {
public:
    // c.type is the type of the new keys and values. Their numbers are random; see spoil().
    explicit Append(const Case& c);

    // Makes groups of the new numbers special: zeros, huge, subnormal, ties of rounding, NaN, Inf.
    void spoil();
    // Overwrites what the cache holds in the rows that the call writes.
    void forget();

    // Bytes of key rows, value rows, key scales, value scales.
    using Bytes = std::vector<std::vector<uint8_t>>;
    Bytes cache_bytes() const;
    // What the cache must hold after the call, by encode_row.
    Bytes expected() const;
    void run(const Way& way);
    testing::AssertionResult same(const Bytes& wanted) const;

    Tensors tensors;  // the cache, and everything else that attention needs
    quire_tensor new_key, new_value, start_pos;
    quire_append_desc desc() const;
    quire_append_args args() const;

private:
    GuardedBuffer fill(quire_tensor* view, int dim, uint64_t stream) const;
    void spoil(const quire_tensor& view, const quire_format& format, Random* random) const;
    void for_each_new_row(const std::function<void(int64_t token, int64_t slot, int head)>& body) const;

    GuardedBuffer key_numbers_, value_numbers_, starts_;
};

}  // namespace quire::test
