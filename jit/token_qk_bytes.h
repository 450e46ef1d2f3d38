// Decode: scores of R query rows against keys in blocks of tokens, of bytes, on targets with 512-bit VNNI.
//
// The query's elements are one byte each (precision `medium`), the two digits of a word (`high`) or the three
// of a number's 24 bits (`highest`).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Blocks of tokens that can be taken like this on the target.
bool has_token_bytes(const quire_format& format, const Target& target);

// What the kernel takes of a query row (args.h: QkArgs). A run is of elements of one group that are
// summed up before they are scaled.
struct TokenBytesForm {
    static constexpr int kOfFactor = 8;  // elements of a query of bytes that share one
    explicit TokenBytesForm(const RowKey& key);
    int dim, digits;
    int zero;         // the key's byte that means 0
    bool is_nibbles;  // of eight elements the first four bytes are of elements 0, 2, 4, 6, then 1, 3, 5, 7

    int run;
    int chains;  // sums of a run: of three digits of int8 the higher ones and the lowest

    int runs() const { return dim / run; }
    // Of a row. Bytes: [dim / 4][digits][4], the highest digit first. Starts: of digits [runs][chains], -zero
    // * the sum of the run's, of the higher ones first. Factors: of digits one; of bytes for each eight
    // elements int32_t -zero * the sum of the bytes, and their factor.
    int bytes() const { return dim * digits; }
    int starts() const { return digits == 1 ? 0 : runs() * chains; }
    int factors() const { return digits == 1 ? 2 * dim / kOfFactor : 1; }
};

Status generate_token_qk_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
