#include "jit/token_qk_amx.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "jit/amx.h"
#include "jit/emitter.h"
#include "jit/token_prefetch.h"
#include "jit/upper_nibbles.h"
#include "src/token_blocks.h"

namespace quire::jit {
namespace {

using Xbyak::Tmm;

// for each block, for each round of its sets:
//   the last tile of sums of the round before is stored
//   for each tile of a set's lines: sums = the query's digits * keys of its chunks           emit_tiles
//   of nibbles, once a block: the next one's codes as bytes, * 16, of each 64 elements the
//     even ones, then the odd ones                                                           emit_bytes
//   of the round before, for each group, query row: acc[row] += the digits together * scale  emit_sums
//   if that was a block's last: scores[row] = acc[row] * factors[row]                        emit_scores
//
// So each step takes what the turn before has made: the processor looks 500 instructions ahead, of which a
// tile that is stored is a hundred, and bytes, tiles, products and sums of a block wait for each other.
//
// Sums are as large as those of jit/qk_amx.cc.
class TokenQkAmx : public Emitter {
public:
    explicit TokenQkAmx(const RowKey& key)
        : Emitter(*key.target), key_(key), form_(key), prefetch_(*this, key, false) {
        begin();
        add_rounds();
        load_args();
        if (nibbles()) emit_bytes();
        Label each, first;
        L(each);
        emit_round(0);
        lea(rax, ptr[count_ + (is_last(0) ? kBlockTokens : 0)]);
        cmp(rax, ptr[args() + offsetof(QkArgs, count)]);
        je(first, T_NEAR);
        emit_sums(rounds() - 1, is_last(0) ? 2 : 1);
        L(first);
        next_place();
        for (int round = 1; round < rounds(); ++round) {
            emit_round(round);
            emit_sums(round - 1, is_last(round) ? 1 : 0);
            next_place();
        }
        test(count_, count_);
        jnz(each, T_NEAR);
        store_sums(rounds() - 1);
        emit_sums(rounds() - 1, 1);
        end();
    }

private:
    using Set = TokenKeyAmx::Set;
    static constexpr int kLine = TokenKeyAmx::kLine, kTileBytes = TokenKeyAmx::kTileBytes;
    static constexpr int kSums = 0, kKeys = 2, kQuery = 4, kTiles = 8;  // tiles of each
    // In numbers: two rounds' sums, and keys of nibbles.
    static constexpr int kMostSums = 16 << 10, kKeysAt = 2 * kMostSums;
    static constexpr int kNextBlock = 8 * kBlockTokens;
    static constexpr int kAsks = 4;

    bool nibbles() const { return form_.parts == 2; }
    bool holds_query() const { return form_.tiles() <= kTiles - kQuery; }
    const Set& set_of(int set) const { return form_.sets[size_t(set)]; }

    // Sets whose sums have room.
    struct Round {
        int first, end;
    };
    void add_rounds() {
        for (int set = 0, room = 0; set < int(form_.sets.size()); ++set) {
            const int bytes = form_.tiles(set_of(set)) * kTileBytes;
            if (rounds_.empty() || bytes > room) rounds_.push_back({set, set}), room = kMostSums;
            rounds_.back().end = set + 1;
            room -= bytes;
        }
    }
    int rounds() const { return int(rounds_.size()); }
    bool is_last(int round) const { return round + 1 == rounds(); }

    void load_args() {
        mov(blocks_, ptr[args() + offsetof(QkArgs, rows)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        mov(sums_, ptr[args() + offsetof(QkArgs, numbers)]);
        lea(sums_before_, ptr[sums_ + kMostSums]);
        if (nibbles()) lea(keys_, ptr[sums_ + kKeysAt]);
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(line_, kLine);
        prefetch_.set(args() + offsetof(QkArgs, next));
        acc_ = vecs("acc", key_.rows);
        vmovups(byte_up_, constant(bytes_moved_up()));
        if (nibbles()) vmovups(upper_ = vec("upper nibbles"), splat_bits(0xf0f0f0f0));
        for (int i = 0; holds_query() && i < form_.tiles(); ++i)
            load_tile(kQuery + i, query_ + i * kTileBytes);
    }
    std::vector<uint32_t> bytes_moved_up() const {
        std::vector<uint32_t> order;
        for (uint32_t lane = 0; lane < uint32_t(lanes()); ++lane)
            order.push_back(0x02010080 + 0x04040400 * (lane % 4));
        return order;
    }

    void emit_round(int round) {
        stage("round " + std::to_string(round));
        store_sums((round > 0 ? round : rounds()) - 1);
        if (!nibbles()) mov(block_, ptr[blocks_]);
        emit_tiles(rounds_[size_t(round)]);
        if (!is_last(round)) return;
        add(blocks_, kNextBlock);
        sub(count_, kBlockTokens);
        if (!nibbles()) return;
        Label none;
        jz(none, T_NEAR);
        emit_bytes();
        L(none);
    }
    void next_place() { xchg(sums_, sums_before_); }

    // ---- keys ----

    void emit_bytes() {
        stage("bytes");
        mov(block_, ptr[blocks_]);
        Temp low(*this, "low nibbles"), v(*this, "codes");
        constexpr int kRows = TokenKeyAmx::kChunk / 8;  // of a chunk, of a block's dwords
        for (int i = 0; i < form_.dim / 8; ++i) {
            vmovups(v, ptr[block_ + i * kLine]);
            const RegExp to = keys_ + (i / kRows * 2 * kRows + i % kRows) * kLine;
            part_nibbles(*this, low, v, upper_);
            vmovups(ptr[to], *low);
            vmovups(ptr[to + kRows * kLine], *v);
        }
    }
    RegExp keys_at(int chunk) const {
        return nibbles() ? keys_ + chunk * kTileBytes : block_ + form_.chunk_at(chunk) / 4 * kLine;
    }

    // ---- tiles ----

    // Each is stored behind the next one's products.
    void emit_tiles(const Round& round) {
        held_.fill(-1);
        int at = 0;
        for (int set = round.first; set < round.end; ++set)
            for (int tile = 0; tile < form_.tiles(set_of(set)); ++tile) {
                const Tmm sum(kSums + at / kTileBytes % 2);
                emit_products(sum, set, tile);
                if (at > 0) store_tile(1 - sum.getIdx(), sums_ + at - kTileBytes);
                at += kTileBytes;
            }
    }
    void emit_products(const Tmm& sum, int i, int tile) {
        const Set& set = set_of(i);
        tilezero(sum);
        for (int chunk = 0; chunk < set.chunks; ++chunk) {
            const int query = form_.query_at(i, chunk) / kTileBytes + tile;
            const Tmm keys = held(kKeys, kQuery - kKeys, set.chunk + chunk, keys_at(set.chunk + chunk));
            const Tmm of_query = holds_query()
                                     ? Tmm(kQuery + query)
                                     : held(kQuery, kTiles - kQuery, query, query_ + query * kTileBytes);
            tdpbssd(sum, of_query, keys);
        }
    }
    // The tile that has number `what` of its kind, of `count` of them from `first` on.
    Tmm held(int first, int count, int what, const RegExp& at) {
        const int tile = first + what % count;
        if (held_[size_t(tile)] != what) load_tile(tile, at);
        held_[size_t(tile)] = what;
        return Tmm(tile);
    }
    void load_tile(int tile, const RegExp& at) { tileloadd(Tmm(tile), ptr[at + line_]); }
    void store_tile(int tile, const RegExp& at) { tilestored(ptr[at + line_], Tmm(tile)); }
    // The last one of a round, the one before.
    void store_sums(int round) {
        const int last = tiles_of(rounds_[size_t(round)]) - 1;
        store_tile(kSums + last % 2, sums_before_ + last * kTileBytes);
    }
    int tiles_of(const Round& round) const {
        int tiles = 0;
        for (int set = round.first; set < round.end; ++set) tiles += form_.tiles(set_of(set));
        return tiles;
    }

    // ---- sums ----

    // Of a round of the block that is so many before that of the list.
    void emit_sums(int round, int before) {
        stage("sums of round " + std::to_string(round));
        mov(block_, ptr[blocks_ - before * kNextBlock]);
        int at = 0, turn = 0;
        for (int set = 0; set < rounds_[size_t(round)].end; ++set) {
            if (set >= rounds_[size_t(round)].first) {
                emit_set(set, sums_before_ + at, turn);
                at += form_.tiles(set_of(set)) * kTileBytes;
            }
            turn += set_of(set).groups;
        }
        if (is_last(round)) emit_scores();
    }
    void emit_set(int i, const RegExp& sums, int turn) {
        const Set& set = set_of(i);
        Temp scale(*this, "scale"), total(*this, "total"), low(*this, "low");
        for (int g = 0; g < set.groups; ++g) {
            ask(turn + g);
            load_scale(scale, set.group + g);
            for (int r = 0; r < key_.rows; ++r) {
                emit_total(total, low, set, sums + (g * key_.rows + r) * kLine);
                const Vec& acc = acc_[size_t(r)];
                i == 0 && g == 0 ? vmulps(acc, total, *scale) : vfmadd231ps(acc, total, *scale);
            }
        }
    }
    void load_scale(const Vec& scale, int group) {
        const int codes = token_block_info(key_.format.type)->code_bytes(key_.dim);
        vcvtph2ps(scale, ptr[block_ + codes + group * kBlockTokens * 2]);
        inf_to_nan(scale);
    }
    void emit_total(const Vec& total, const Vec& low, const Set& set, const RegExp& at) {
        const int digit = form_.line_at(set, 1, 0);
        vmovups(total, ptr[at]);
        vpshufb(Xbyak::Zmm(total.getIdx()), Xbyak::Zmm(total.getIdx()), Xbyak::Zmm(byte_up_.getIdx()));
        vpaddd(total, total, ptr[at + digit]);
        vcvtdq2ps(total, total);
        if (form_.digits == 2) return;
        vcvtdq2ps(low, ptr[at + 2 * digit]);
        vfmadd132ps(total, low, splat(256));
    }
    int turns() const {  // groups of all sets
        int turns = 0;
        for (const Set& set : form_.sets) turns += set.groups;
        return turns;
    }
    // A share of the next blocks.
    void ask(int turn) {
        const int asks = std::min(turns(), kAsks), part = turn * asks / turns();
        if (turn > 0 && part == (turn - 1) * asks / turns()) return;
        prefetch_.ask(prefetch_.share(1, 1), part, asks);
    }

    void emit_scores() {
        stage("scores");
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        for (int r = 0; r < key_.rows; ++r) {
            const Vec& acc = acc_[size_t(r)];
            if (nibbles()) vmulps(acc, acc, splat(1 / 16.f));
            vmulps(Xbyak::Zmm(acc.getIdx()), Xbyak::Zmm(acc.getIdx()), ptr_b[rax + r * 4]);
            vmovups(ptr[scores_ + r * kBlock * 4], acc);
        }
        add(scores_, 4 * kBlockTokens);
    }

    const RowKey key_;
    const TokenKeyAmx form_;
    std::vector<Round> rounds_;
    TokenPrefetch prefetch_;
    const Gpr blocks_ = gpr("blocks"), scores_ = gpr("scores"), count_ = gpr("count"), block_ = gpr("block"),
              sums_ = gpr("sums"), sums_before_ = gpr("sums before"), query_ = gpr("query"),
              line_ = gpr("bytes of a line");
    const Gpr keys_ = nibbles() ? gpr("keys") : Gpr();
    const Vec byte_up_ = vec("a byte up");
    Vec upper_;
    std::vector<Vec> acc_;
    std::array<int, kTiles> held_{};  // by tile, what it has
};

}  // namespace

Status generate_token_qk_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenQkAmx(key).finish(code);
}

}  // namespace quire::jit
