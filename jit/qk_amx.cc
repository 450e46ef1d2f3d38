#include "jit/qk_amx.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "jit/prefetch.h"
#include "jit/qk_amx_sums.h"
#include "jit/row_list.h"
#include "jit/upper_nibbles.h"

namespace quire::jit {
namespace {

using Xbyak::Tmm;

// scales = themselves, of nibbles a sixteenth, NaN for Inf                            clean_scales
// for each few times 16 keys, as long as their sums are near:
//   rows of nibbles, or that are listed -> bytes side by side                         stage_row
//   for each 16 keys, for each set of groups, for step, for digit:
//     sum[digit] += tile of keys * tile of the query, in int32                        emit_tiles
//   for each 16 keys:
//     for each set, for each vector of its sums:
//       acc += the digits together * scale of the lane's group                        emit_scaled, emit_mixed
//     scores[r] = acc, lanes of groups added up, times factors[r]                     emit_sums_scores
//
// Sums of a group: kMostOfGroup * 128 * (127 * 256 + 128) < 2^31 (of three digits the lowest has a conversion
// of its own).
class QkAmx : public AmxSums {
public:
    explicit QkAmx(const RowKey& key) : AmxSums(key), prefetch_(*this, key) {
        begin();
        load_args();
        if (!form_.is_standard()) ldtilecfg(constant(config()));
        load_query();
        clean_scales();
        set_sums();
        Label each;
        L(each);
        if (stages()) emit_stage();
        if (rounds() == 1)
            emit_round();
        else
            emit_rounds();
        sub(count_, units() * kAmxRows);
        ja(each, T_NEAR);
        if (!form_.is_standard()) ldtilecfg(constant(standard_tiles()));
        end();
    }

private:
    static constexpr int kTiles = 8;
    static constexpr int kMostSums = KeyAmx::kMostSums;  // a quarter of the first-level cache

    // Of so many sets at a time, as often, and of so many times 16 keys.
    int sets_together() const { return std::min(form_.sets(), kMostSums / form_.planes()); }
    int rounds() const { return (form_.sets() + sets_together() - 1) / sets_together(); }
    int units() const {
        const int near = form_.planes() * sets_together() < 4 ? 2 : 1;  // more of them take longer
        const int of_staged = stages() ? kMostStaged / (kAmxRows * staged_bytes()) : near;
        return std::max(1, std::min(near, of_staged));
    }
    int unit_bytes() const { return sets_together() * form_.planes() * kTileBytes; }

    // body() for each 16 of these keys.
    template <typename Body>
    void for_units(const Body& body) {
        Label each;
        mov(rax, units() * kAmxRows);
        mov(left_, count_);
        cmp(left_, rax);
        cmova(left_, rax);
        L(each);
        body();
        sub(left_, kAmxRows);
        jnz(each, T_NEAR);
    }
    void emit_round() {
        mov(sums_, ptr[args() + offsetof(QkArgs, numbers)]);
        for_units([&] {
            begin_tiles();
            for (int set = 0; set < form_.sets(); ++set) emit_tiles(set, set);
            store_sums();
            next_rows();
            add(sums_, unit_bytes());
        });
        mov(sums_, ptr[args() + offsetof(QkArgs, numbers)]);
        for_units([&] {
            prefetch_keys();
            if (!form_.mixed.empty()) emit_mixed();
            for (int set = 0; form_.mixed.empty() && set < form_.sets(); ++set) emit_scaled(set, set);
            emit_sums_scores();
            add(sums_, unit_bytes());
            next_scores();
        });
    }
    // More sets than have room, of 16 keys.
    void emit_rounds() {
        mov(sums_, ptr[args() + offsetof(QkArgs, numbers)]);
        begin_tiles();
        for (int round = 0, set = 0; round < rounds(); ++round) {
            const int end = std::min(form_.sets(), set + sets_together());
            for (int i = set; i < end; ++i) emit_tiles(i, i - set);
            store_sums();
            for (int i = set; i < end; ++i) emit_scaled(i, i - set);
            set = end;
        }
        next_rows();
        emit_sums_scores();
        next_scores();
    }
    void next_rows() { stages() ? add(staged_, kAmxRows * staged_bytes()) : rows_.move(kAmxRows); }
    void next_scores() {
        prefetch_.move(kAmxRows);
        add(scores_, 4 * kAmxRows);
        add(scales_, 4 * key_.scales_stride() * kAmxRows);
    }

    void load_args() {
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        rows_.set(args() + offsetof(QkArgs, rows));
        prefetch_.turns_of(kAmxRows);
        prefetch_.set(args() + offsetof(QkArgs, next), 0);
        mov(key_bytes_, stages() ? staged_bytes() : key_.row_bytes());
        mov(lane_bytes_, form_.lane_bytes());
        if (!stages()) return;
        if (form_.parts == 2) vmovups(upper_ = vec("upper nibbles"), splat_bits(0xf0f0f0f0));
        if (form_.joins_parts) {
            std::vector<uint32_t> shifts(16, 0);
            std::fill_n(shifts.begin(), 8, 0x00040004);
            mov(eax, ((1 << form_.part_bytes % KeyAmx::kHalf / 8) - 1) * 0x11);  // quadwords of both halves
            kmovd(rest_, eax);
            vmovups(lower_up_ = vec("shifts of nibbles"), constant(shifts));
            return;
        }
        if (rest() == 64) return;
        mov(rax, (uint64_t(1) << rest()) - 1);
        kmovq(rest_, rax);
    }

    // ---- tiles ----

    int whole() const { return form_.chunks.front().bytes; }
    bool is_whole(const KeyAmx::Chunk& chunk) const { return chunk.bytes == whole(); }
    const KeyAmx::Chunk& chunk_of(int step) const {
        return form_.chunks[size_t(form_.steps[size_t(step)].chunk)];
    }
    // Of a part, whose last chunk may not be whole: those have tiles of their own.
    int rest() const { return form_.chunks.back().bytes; }
    bool has_rest() const { return rest() < whole(); }
    static constexpr int kKeys = 2, kWhole = 2, kRest = kKeys + kWhole;
    int first_of_query() const { return has_rest() ? kRest + 2 : kRest; }
    // The query stays in tiles where there are enough.
    bool holds_query() const {
        return !has_rest() && first_of_query() + form_.planes() * int(form_.steps.size()) <= kTiles;
    }
    // i: of the steps of a set. Sets of mixed digits follow each other over the same chunks.
    Tmm keys_of(int step, int i) const {
        const int at = form_.mixed.empty() ? i : form_.steps[size_t(step)].chunk;
        return Tmm(is_whole(chunk_of(step)) ? kKeys + at % kWhole : kRest);
    }
    Tmm query_of(int plane, int step) const {
        if (!is_whole(chunk_of(step))) return Tmm(kRest + 1);
        const int count = kTiles - first_of_query(), at = plane * int(form_.steps.size()) + step;
        return Tmm(first_of_query() + at % count);
    }
    std::vector<uint32_t> config() const {
        const int lanes = form_.lane_bytes();
        std::vector<TileShape> shapes(kKeys, {kAmxRows, lanes});
        shapes.resize(kKeys + kWhole, {kAmxRows, whole()});
        if (has_rest()) shapes.insert(shapes.end(), {{kAmxRows, rest()}, {rest() / 4, lanes}});
        shapes.resize(kTiles, {whole() / 4, lanes});
        return tile_config(shapes);
    }
    void load_query_tile(int plane, int step) {
        tileloadd(query_of(plane, step), ptr[query_ + form_.tile_at(plane, step) + lane_bytes_]);
    }
    void load_query() {
        for (int i = 0; holds_query() && i < int(form_.steps.size()); ++i)
            for (int plane = 0; plane < form_.planes(); ++plane) load_query_tile(plane, i);
    }
    // Sets that share a chunk follow each other.
    void load_keys(int step, int i) {
        const int at = form_.steps[size_t(step)].chunk, tile = keys_of(step, i).getIdx();
        if (loaded_[size_t(tile)] == at) return;
        loaded_[size_t(tile)] = at;
        if (!stages()) rows_.turn(rax);
        const RegExp keys = stages() ? staged_ + at * 64 : rows_.in_turn(0, rax) + chunk_of(step).at;
        tileloadd(keys_of(step, i), ptr[keys + key_bytes_]);
    }

    // Of a set, to the sums of `place`, digit by digit: as tiles of the query are loaded and the sums before
    // stored, others are multiplied.
    void emit_tiles(int set, int place) {
        stage("products of set " + std::to_string(set));
        std::vector<int> steps;
        for (int i = 0; i < int(form_.steps.size()); ++i)
            if (form_.steps[size_t(i)].set == set) steps.push_back(i);
        const int count = int(steps.size());
        const auto wholes =
            std::count_if(steps.begin(), steps.end(), [&](int i) { return is_whole(chunk_of(i)); });
        const bool holds_keys = wholes <= kWhole && count - wholes <= 1;
        for (int i = 0; holds_keys && i < count; ++i) load_keys(steps[size_t(i)], i);
        for (int plane = 0; plane < form_.planes(); ++plane) {
            const Tmm sum(1 - stored_.tile);
            tilezero(sum);
            for (int i = 0; i < count; ++i) {
                const int step = steps[size_t(i)];
                if (!holds_keys) load_keys(step, i);
                if (!holds_query()) load_query_tile(plane, step);
                tdpbssd(sum, keys_of(step, i), query_of(plane, step));
            }
            store_sums();
            stored_ = {sum.getIdx(), (place * form_.planes() + plane) * kTileBytes};
        }
    }
    void store_sums() {
        if (stored_.at >= 0) tilestored(ptr[sums_ + stored_.at + lane_bytes_], Tmm(stored_.tile));
        stored_.at = -1;
    }
    void begin_tiles() { loaded_.fill(-1); }

    // ---- rows that are not tiles as they lie ----

    bool stages() const { return form_.parts > 1 || !rows_.side_by_side(); }
    int staged_bytes() const { return int(form_.chunks.size()) * 64; }
    static constexpr int kStagedAt = kMostSums * kTileBytes;  // in numbers, behind the sums
    static constexpr int kMostStaged = 16 << 10;
    void emit_stage() {
        mov(staged_, ptr[args() + offsetof(QkArgs, numbers)]);
        add(staged_, kStagedAt);
        mov(sums_, staged_);
        for_units([&] { stage_rows(); });
    }
    // Of sixteen keys, to `sums_` on.
    void stage_rows() {
        stage("rows side by side");
        rows_.turn(rax);
        for (int key = 0; key < kAmxRows; ++key) stage_row(key);
        rows_.move(kAmxRows);
        add(sums_, kAmxRows * staged_bytes());
    }
    void stage_row(int key) {
        if (form_.joins_parts) return stage_joined(key);
        const int of_part = int(form_.chunks.size()) / form_.parts;
        Temp v(*this, "codes"), low(*this, "low nibbles");
        const RegExp row = rows_.in_turn(key, rax);
        for (int i = 0; i < of_part; ++i) {
            const KeyAmx::Chunk& chunk = form_.chunks[size_t(i)];
            chunk.bytes == 64 ? vmovups(v, ptr[row + chunk.at])
                              : vmovdqu8(z(v) | rest_ | T_z, ptr[row + chunk.at]);
            const RegExp at = sums_ + key * staged_bytes() + i * 64;
            if (form_.parts == 2) {  // times 16
                part_nibbles(*this, low, v, upper_);
                vmovups(ptr[at], *low);
            }
            vmovups(ptr[at + (form_.parts - 1) * of_part * 64], *v);
        }
    }

    // Of the same 32 bytes even elements and, 32 bytes behind them, odd ones.
    void stage_joined(int key) {
        Temp v(*this, "codes");
        const RegExp row = rows_.in_turn(key, rax);
        for (size_t i = 0; i < form_.chunks.size(); ++i) {
            const int at = form_.chunks[i].at;
            const bool whole = at + KeyAmx::kHalf <= form_.part_bytes;
            vbroadcasti64x4(whole ? z(v) : z(v) | rest_ | T_z, ptr[row + at]);
            vpsllvw(z(v), z(v), z(lower_up_));
            vpandd(v, v, upper_);
            vmovups(ptr[sums_ + key * staged_bytes() + int(i) * 64], *v);
        }
    }

    // ---- sums ----

    void clean_scales() {
        stage("scales");
        Temp v(*this, "scales");
        Label each;
        const bool nibbles = form_.parts == 2;  // times 16; factors that much smaller might be subnormal
        mov(rax, scales_);
        imul(left_, count_, key_.scales_stride() * 4);
        L(each);
        vmovups(v, ptr[rax]);
        inf_to_nan(v);
        if (nibbles) vmulps(v, v, splat(1 / 16.f));
        vmovups(ptr[rax], *v);
        add(rax, vec_bytes());
        sub(left_, vec_bytes());
        jg(each);
    }

    // Of rows side by side those that come next, into the first-level cache: tiles wait for all their rows.
    void prefetch_keys() {
        if (!rows_.adjacent()) return;
        Label last;
        cmp(count_, units() * kAmxRows);
        jbe(last, T_NEAR);
        mov(rax, units() * kAmxRows);
        sub(rax, left_);
        imul(rax, rax, key_.row_bytes());
        for (int at = 0; at < kAmxRows * key_.row_bytes(); at += 64) prefetcht0(ptr[rows_.here() + rax + at]);
        L(last);
    }

    // Share `part` of `parts` of what sixteen keys ask for.
    void emit_prefetches(int part, int parts) override { prefetch_.some(kAmxRows, part, parts); }

    struct Stored {
        int tile = 1, at = -1;  // at: of its sums; -1: there is none
    };
    Stored stored_;                     // is to be
    std::array<int, kTiles> loaded_{};  // what tiles of keys hold: the chunk
    Prefetch prefetch_;
    const Gpr query_ = gpr("query"), count_ = gpr("count"), key_bytes_ = gpr("bytes of a key"),
              lane_bytes_ = gpr("bytes of sums"), left_ = gpr("left");
    RowList rows_{*this, key_, key_.row_bytes(), "rows"};
    const Gpr staged_ = stages() ? gpr("staged") : Gpr();
    const Xbyak::Opmask rest_{3};  // bytes of the last chunk
    Vec upper_, lower_up_;
};

}  // namespace

Status generate_qk_amx(const RowKey& key, std::vector<uint8_t>* code) { return QkAmx(key).finish(code); }

}  // namespace quire::jit
