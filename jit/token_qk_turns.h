// QK over blocks of tokens that are bytes: the frame of the kernels, and what they take of the query. The
// arithmetic is a subclass's.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "jit/byte_loader.h"
#include "jit/emitter.h"
#include "jit/token_prefetch.h"
#include "jit/token_qk_bytes.h"
#include "src/token_blocks.h"

namespace quire::jit {

// The lanes are tokens. For each turn of two vectors, which are two blocks (of an odd number the last one
// twice), or with 256 bits the halves of one, for each pass over R' of the query rows:      emit_pass
//   scores[r] = the query's products with codes, times scales and factors
class TokenQkTurns : public Emitter {
protected:
    static constexpr int kVectors = 2;                       // of a turn
    static_assert(kBlock % (kVectors * kBlockTokens) == 0);  // scores of an odd block's double have room

    using Pair = std::vector<Vec>;  // [kVectors]

    // room: a register more is free for the prefetches.
    TokenQkTurns(const RowKey& key, bool room)
        : Emitter(*key.target),
          key_(key),
          form_(key),
          loader_(ByteLoader::make(*this, row_format(key.format),
                                   4 * lanes() * byte_parts(row_format(key.format)))),
          prefetch_(*this, key, room) {}

    virtual void emit_kept() = 0;  // what is in registers all through
    virtual int rows_a_pass() const = 0;
    virtual void emit_pass(int row, int rows) = 0;

    void generate() {
        begin();
        mov(blocks_, ptr[args() + offsetof(QkArgs, rows)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        prefetch_.set(args() + kNext);
        emit_kept();
        Label each_turn;
        L(each_turn);
        for (int row = 0; row < key_.rows; row += rows_a_pass()) {
            stage("rows from " + std::to_string(row));
            emit_pass(row, std::min(rows_a_pass(), key_.rows - row));
        }
        add(blocks_, 8 * turn());
        add(scores_, 4 * turn());
        sub(count_, turn());
        jg(each_turn, T_NEAR);
        end();
    }

    int turn() const { return kVectors * lanes(); }  // tokens
    bool of_two_blocks() const { return turn() > kBlockTokens; }
    int blocks() const { return of_two_blocks() ? 2 : 1; }
    // What vector b of a turn has where the first has this, so many bytes of each token.
    RegExp of_vector(const RegExp& at, int b, int bytes) const {
        return b == 0 ? at : of_two_blocks() ? at + second_ : at + lanes() * bytes;
    }

    int parts() const { return byte_parts(row_format(key_.format)); }  // vectors of a dword of codes
    int of_dword() const { return 4 * parts(); }
    int rows_of(int most) const {  // as many at once as passes are alike with
        const int passes = (key_.rows + most - 1) / most;
        return (key_.rows + passes - 1) / passes;
    }
    RegExp scores_at(int row, int block) const { return scores_ + row * kBlock * 4 + block * vec_bytes(); }

    // Where the pass begins. second_: the distance from the turn's first block to the one behind it, or 0.
    void begin_pass(int row) {
        mov(block_, ptr[blocks_]);
        if (of_two_blocks()) load_second();
        if (prefetch_.asks_again()) prefetch_.look_ahead(blocks_, count_, block_);
        lea(scales_, ptr[block_ + token_block_info(key_.format.type)->code_bytes(key_.dim)]);
        mov(element_, ptr[args() + offsetof(QkArgs, query)]);
        mov(starts_,
            ptr[args() + (form_.by_eights() ? offsetof(QkArgs, factors) : offsetof(QkArgs, starts))]);
        if (row != 0) add(element_, row * form_.bytes());
        if (row != 0) add(starts_, row * starts_of_row() * 4);
    }
    void load_second() {
        mov(second_, block_);
        Label alone;
        cmp(count_, turn());
        jl(alone);
        mov(second_, ptr[blocks_ + 8 * kBlockTokens]);
        L(alone);
        sub(second_, block_);
    }

    void zero_both(const Pair& v) {
        for (const Vec& of_block : v) zero(of_block);
    }
    void load_both(const Pair& v, const RegExp& at) {
        broadcast(v[0], ptr[at]);
        for (size_t b = 1; b < v.size(); ++b) vmovaps(v[b], v[0]);
    }
    int starts_of_row() const { return form_.by_eights() ? form_.factors() : form_.starts(); }
    RegExp starts_at(int row, int i) const { return starts_ + (row * starts_of_row() + i) * 4; }
    RegExp element_at(int row, int at) const { return element_ + row * form_.bytes() + at * 4; }

    // Codes of dword i of both vectors, as bytes from 0 on: [parts].
    std::vector<Pair> load_codes(int i) {
        std::vector<Pair> codes;
        for (int p = 0; p < parts(); ++p) codes.push_back(vecs("codes", kVectors));
        for (int b = 0; b < kVectors; ++b) {
            Vec k[2] = {codes[0][size_t(b)], codes.back()[size_t(b)]};
            loader_->load_packed(k[0], 0, of_vector(block_ + i * kBlockTokens * 4, b, 4));
            loader_->unpack(k);
        }
        return codes;
    }
    // Lines of dword i, of blocks ahead, into the first level.
    void ask_ahead(int i) {
        const RegExp ahead = prefetch_.ahead(block_ + i * kBlockTokens * 4);
        prefetcht0(ptr[ahead]);
        if (of_two_blocks()) prefetcht0(ptr[ahead + second_]);
    }

    void emit_dots(const Pair& sums, const Pair& codes, int row, int at) {
        Temp q(*this, "q");
        broadcast(q, ptr[element_at(row, at)]);
        for (size_t b = 0; b < sums.size(); ++b) dot_bytes(sums[b], codes[b], q);
    }

    void load_scale(const Vec& scale, int b) {
        vcvtph2ps(scale, ptr[of_vector(scales_, b, 2)]);
        inf_to_nan(scale);
    }

    static constexpr size_t kNext = offsetof(QkArgs, next);

    const RowKey key_;
    const TokenBytesForm form_;
    const std::unique_ptr<ByteLoader> loader_;
    TokenPrefetch prefetch_;
    const Gpr blocks_ = gpr("blocks"), scores_ = gpr("scores"), count_ = gpr("count"), block_ = gpr("block"),
              second_ = gpr("to the second"), element_ = gpr("query elements"), scales_ = gpr("scales"),
              starts_ = gpr("starts, or factors of bytes");
};

// TokenBytesForm::whole_groups
Status generate_token_qk_groups(const RowKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
