// Decode: scores of R query rows against keys in blocks of tokens, of bytes.
//
// The query's elements are one byte each (precision `medium`), or on targets with 512-bit VNNI the two digits
// of a word (`high`) or the three of a number's 24 bits (`highest`).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Blocks of tokens that can be taken like this on the target, with so many digits of the query.
bool has_token_bytes(const quire_format& format, const Target& target, int digits);

// What the kernel takes of a query row (args.h: QkArgs). A run is of elements of one group that are
// summed up before they are scaled.
struct TokenBytesForm {
    static constexpr int kOfFactor = 8;  // elements of a query of bytes that share one
    explicit TokenBytesForm(const RowKey& key);
    int dim, digits;
    int zero;         // the key's byte that means 0
    bool is_nibbles;  // of eight elements the first four bytes are of elements 0, 2, 4, 6, then 1, 3, 5, 7
    // Of one byte without VNNI: as FoursForm::weighs_words, each two bytes have a factor that is a word.
    bool weighs_words;
    int largest;         // of the query's numbers
    int largest_factor;  // a run's sum of words times factors is within int32

    int run;
    int chains;  // sums of a run: of three digits of int8 the higher ones and the lowest
    // Groups that are so small that their codes stay in registers, and so do all scores.
    bool whole_groups;

    int runs() const { return dim / run; }
    // Each eight elements are a number that is multiplied by their factor.
    bool by_eights() const { return digits == 1 && !weighs_words; }
    // Of a row. Bytes: [dim / 4][digits][4], the highest digit first; or [dim / 4] of four bytes and two
    // words. Starts: [runs][chains], -zero * the sum of the run's, of the higher digits first, or of bytes
    // times factors; by eights none. Factors: one; by eights int32_t -zero * the sum of the bytes, and their
    // factor.
    int dwords() const { return weighs_words ? 2 : digits; }  // of four elements
    int bytes() const { return dim * dwords(); }
    int starts() const { return by_eights() ? 0 : runs() * chains; }
    int factors() const { return by_eights() ? 2 * dim / kOfFactor : 1; }
};

Status generate_token_qk_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
