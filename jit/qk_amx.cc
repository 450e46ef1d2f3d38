#include "jit/qk_amx.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "jit/emitter.h"
#include "jit/prefetch.h"
#include "jit/row_list.h"

namespace quire::jit {
namespace {

using Xbyak::Tmm;
using Xbyak::Zmm;

// scales = themselves, NaN for Inf                                                    clean_scales
// for each 16 keys, for each set of groups:
//   rows of nibbles, or that are listed -> bytes side by side, in the first set       stage_rows
//   for step, for digit: sum[digit] += tile of keys * tile of the query, in int32     emit_tiles
//   (of the next set, while those of this one are scaled)
//   for each vector of sums: acc += the digits together * scale of the lane's group   emit_scaled
// and behind the last set
//   scores[r] = acc, lanes of groups added up, times factors[r]                       emit_scores
//
// 64 bytes of a step, 127 * 128 each, 16 steps: below 2^24; times 256 below 2^31, and the next digit's.
class QkAmx : public Emitter {
public:
    explicit QkAmx(const RowKey& key)
        : Emitter(*key.target), key_(key), form_(key), prefetch_(*this, key) {
        begin();
        load_args();
        ldtilecfg(constant(config()));
        load_query();
        clean_scales();
        stage_rows();
        emit_tiles(0, now_);
        Label each;
        L(each);
        for (int set = 0; set < form_.sets(); ++set) {
            emit_next(set);
            emit_scaled(set);
            xchg(now_, other_);
        }
        emit_scores();
        prefetch_.move(kAmxRows);
        add(scores_, 4 * kAmxRows);
        add(scales_, 4 * key.scales_stride() * kAmxRows);
        sub(count_, kAmxRows);
        jnz(each, T_NEAR);
        tilerelease();
        end();
    }

private:
    static constexpr int kTileBytes = 64 * kAmxRows, kTiles = 8;
    static Zmm z(const Vec& v) { return Zmm(v.getIdx()); }

    void load_args() {
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        mov(now_, ptr[args() + offsetof(QkArgs, numbers)]);
        lea(other_, ptr[now_ + form_.digits * kTileBytes]);
        if (stages()) lea(staged_, ptr[other_ + form_.digits * kTileBytes]);
        rows_.set(args() + offsetof(QkArgs, rows));
        prefetch_.turns_of(kAmxRows);
        prefetch_.set(args() + offsetof(QkArgs, next), 0);
        mov(key_bytes_, stages() ? staged_bytes() : key_.row_bytes());
        mov(lane_bytes_, form_.lane_bytes());
        if (!stages() || rest() == 64) return;
        mov(rax, (uint64_t(1) << rest()) - 1);
        kmovq(rest_, rax);
    }

    // ---- tiles ----

    static Tmm sum(int digit) { return Tmm(digit); }
    static bool is_whole(const KeyAmx::Chunk& chunk) { return chunk.bytes == 64; }
    const KeyAmx::Chunk& chunk_of(int step) const {
        return form_.chunks[size_t(form_.steps[size_t(step)].chunk)];
    }
    int rest() const { return form_.chunks.back().bytes; }  // of a part, whose last chunk may not be whole
    // Those are tiles of their own.
    Tmm keys_of(const KeyAmx::Chunk& chunk) const { return Tmm(form_.digits + !is_whole(chunk)); }
    int first_of_query() const { return form_.digits + (rest() < 64 ? 2 : 1); }
    // The query stays in tiles where there are enough.
    bool holds_query() const {
        return first_of_query() + form_.digits * int(form_.steps.size()) <= kTiles;
    }
    Tmm query_of(int digit, int step) const {
        if (holds_query()) return Tmm(first_of_query() + digit * int(form_.steps.size()) + step);
        const int whole = kTiles - first_of_query() - 1;
        return Tmm(is_whole(chunk_of(step)) ? first_of_query() + digit % whole : kTiles - 1);
    }
    std::vector<uint32_t> config() const {
        const int lanes = form_.lane_bytes();
        std::vector<TileShape> shapes(size_t(form_.digits), {kAmxRows, lanes});
        shapes.push_back({kAmxRows, 64});
        if (rest() < 64) shapes.push_back({kAmxRows, rest()});
        shapes.resize(kTiles, {16, lanes});
        for (int i = 0; i < int(form_.steps.size()); ++i)
            for (int digit = 0; digit < form_.digits; ++digit)
                shapes[size_t(query_of(digit, i).getIdx())] = {chunk_of(i).bytes / 4, lanes};
        return tile_config(shapes);
    }
    void load_query_tile(int digit, int step) {
        tileloadd(query_of(digit, step), ptr[query_ + form_.tile_at(digit, step) + lane_bytes_]);
    }
    void load_query() {
        for (int i = 0; holds_query() && i < int(form_.steps.size()); ++i)
            for (int digit = 0; digit < form_.digits; ++digit) load_query_tile(digit, i);
    }

    void emit_tiles(int set, const Gpr& sums) {
        stage("products of set " + std::to_string(set));
        for (int digit = 0; digit < form_.digits; ++digit) tilezero(sum(digit));
        if (!stages()) rows_.turn(row_);
        for (int i = 0; i < int(form_.steps.size()); ++i) {
            if (form_.steps[size_t(i)].set != set) continue;
            const int at = form_.steps[size_t(i)].chunk;
            const KeyAmx::Chunk& chunk = chunk_of(i);
            const RegExp keys = stages() ? staged_ + at * 64 : rows_.in_turn(0, rax) + chunk.at;
            tileloadd(keys_of(chunk), ptr[keys + key_bytes_]);
            for (int digit = 0; digit < form_.digits; ++digit) {
                if (!holds_query()) load_query_tile(digit, i);
                tdpbssd(sum(digit), keys_of(chunk), query_of(digit, i));
            }
        }
        for (int digit = 0; digit < form_.digits; ++digit)
            tilestored(ptr[sums + digit * kTileBytes + lane_bytes_], sum(digit));
    }

    // Tiles of what comes behind a set.
    void emit_next(int set) {
        if (set + 1 < form_.sets()) return emit_tiles(set + 1, other_);
        Label none;
        cmp(count_, kAmxRows);
        je(none, T_NEAR);
        rows_.move(kAmxRows);
        stage_rows();
        emit_tiles(0, other_);
        L(none);
    }

    // ---- rows that are not tiles as they lie ----

    bool stages() const { return form_.parts > 1 || !rows_.side_by_side(); }
    int staged_bytes() const { return int(form_.chunks.size()) * 64; }
    void stage_rows() {
        if (!stages()) return;
        stage("rows side by side");
        rows_.turn(row_);
        const int of_part = int(form_.chunks.size()) / form_.parts;
        Temp v(*this, "codes"), low(*this, "low nibbles"), upper(*this, "upper nibbles");
        vmovups(upper, splat_bits(0xf0f0f0f0));
        for (int key = 0; key < kAmxRows; ++key) {
            const RegExp row = rows_.in_turn(key, rax);
            for (int i = 0; i < of_part; ++i) {
                const KeyAmx::Chunk& chunk = form_.chunks[size_t(i)];
                is_whole(chunk) ? vmovups(v, ptr[row + chunk.at]) : vmovdqu8(z(v) | rest_ | T_z, ptr[row + chunk.at]);
                const RegExp at = staged_ + key * staged_bytes() + i * 64;
                if (form_.parts == 2) {  // times 16
                    vpsllw(low, v, 4);
                    vpandd(low, low, upper);
                    vpandd(v, v, upper);
                    vmovups(ptr[at], *low);
                }
                vmovups(ptr[at + (form_.parts - 1) * of_part * 64], *v);
            }
        }
    }

    // ---- sums ----

    int vectors() const { return form_.lanes(); }           // of sixteen keys' sums of a digit
    int keys_a_vector() const { return 16 / form_.lanes(); }

    void clean_scales() {
        stage("scales");
        const Gpr left = other_;  // not in use yet
        Temp v(*this, "scales");
        Label each;
        mov(rax, scales_);
        imul(left, count_, key_.scales_stride() * 4);
        L(each);
        vmovups(v, ptr[rax]);
        inf_to_nan(v);
        vmovups(ptr[rax], *v);
        add(rax, vec_bytes());
        sub(left, vec_bytes());
        jg(each);
        lea(other_, ptr[now_ + form_.digits * kTileBytes]);
    }

    void emit_scaled(int set) {
        stage("sums of set " + std::to_string(set));
        if (set == 0) acc_ = vecs("acc", vectors());
        Temp total(*this, "total"), low(*this, "low"), scale(*this, "scale");
        for (int v = 0; v < vectors(); ++v) {
            emit_prefetches(set * vectors() + v, form_.sets() * vectors());
            emit_total(total, low, now_ + v * vec_bytes());
            load_scales(scale, set, v);
            set == 0 ? vmulps(acc_[size_t(v)], total, *scale) : vfmadd231ps(acc_[size_t(v)], total, *scale);
        }
    }
    // What the digits are together, as a number.
    void emit_total(const Vec& total, const Vec& low, const RegExp& sums) {
        vmovups(total, ptr[sums]);
        vpslld(total, total, 8);
        vpaddd(total, total, ptr[sums + kTileBytes]);
        vcvtdq2ps(total, total);
        if (form_.digits == 2) return;
        vcvtdq2ps(low, ptr[sums + 2 * kTileBytes]);
        vfmadd132ps(total, low, splat(256));
    }
    // A group that there is not has sums of 0, and the scale of another.
    void load_scales(const Vec& v, int set, int vector) {
        const int stride = key_.scales_stride(), first = set * form_.together;
        const RegExp at = scales_ + (vector * keys_a_vector() * stride + first) * 4;
        if (form_.lanes() == 1) {
            load_every_second(v, at);
            return;
        }
        if (keys_a_vector() == 1 && first + form_.together <= form_.groups) return repeat(v, at);
        std::vector<int> index;
        for (int lane = 0; lane < lanes(); ++lane) {
            const int group = std::min(lane % form_.together, form_.groups - 1 - first);
            index.push_back(lane / form_.lanes() * stride + group);
        }
        load_lanes(v, at, index);
    }
    // A set's scales, as often as there are query rows.
    void repeat(const Vec& v, const RegExp& at) {
        switch (form_.together) {
            case 1: return broadcast(v, ptr[at]);
            case 2: return vpbroadcastq(z(v), ptr[at]);
            case 4: return vbroadcastf32x4(z(v), ptr[at]);
            case 8: return vbroadcastf32x8(z(v), ptr[at]);
            default: return vmovups(v, ptr[at]);
        }
    }

    // ---- scores ----

    // What the bits of a lane's number, or of a vector's, say: the lowest first.
    struct Bit {
        enum { group, row, key } of;
        int bit;
    };

    // Each step takes bit 0 of the lanes, or bit 2, out of two vectors: where it is one of a group both are
    // added up, where it is one of a row there are two vectors again. Bit 1, or 3, takes its place, and that
    // by which the two vectors differed that one's.
    void emit_scores() {
        stage("scores");
        const int of_lanes = log2(form_.lanes()), of_groups = log2(form_.together);
        std::array<Bit, 4> bits;
        for (int i = 0; i < 4; ++i)
            bits[size_t(i)] = i < of_groups  ? Bit{Bit::group, i}
                              : i < of_lanes ? Bit{Bit::row, i - of_groups}
                                             : Bit{Bit::key, i - of_lanes};
        std::vector<Vec> list = acc_;  // [rows so far][keys left]
        for (int i = 0, rows = 1; i < of_lanes; ++i) {
            const size_t low = i < 2 ? 0 : 2;
            const Bit taken = bits[low];
            // In place of bits that are gone the other pair's have come.
            list = taken.of == Bit::group ? add_pairs(list, rows, low) : part_pairs(list, rows, low);
            if (taken.of == Bit::row) rows *= 2;
            bits[low] = bits[low + 1];
            bits[low + 1] = {Bit::key, log2(keys_a_vector()) + i};
        }
        const std::vector<uint32_t> order = order_of(bits);
        for (int r = 0; r < form_.rows; ++r) store_scores(list[size_t(r)], r, order);
        free(list);
    }
    static int log2(int n) { return n > 1 ? 1 + log2(n / 2) : 0; }

    void take(const Vec& d, const Vec& a, const Vec& b, size_t low, bool upper) {
        const uint8_t which = upper ? 0xdd : 0x88;
        low == 0 ? vshufps(z(d), z(a), z(b), which) : vshuff32x4(z(d), z(a), z(b), which);
    }
    std::vector<Vec> add_pairs(const std::vector<Vec>& list, int rows, size_t low) {
        std::vector<Vec> sums;
        const int of_row = int(list.size()) / rows;
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < of_row; i += 2) {
                const Vec &a = list[size_t(r * of_row + i)], &b = list[size_t(r * of_row + i + 1)];
                Temp upper(*this, "upper");
                take(upper, a, b, low, true);
                take(a, a, b, low, false);
                vaddps(a, a, *upper);
                free(b);
                sums.push_back(a);
            }
        return sums;
    }
    // Row bits are taken from the lowest on: the new one is above those before.
    std::vector<Vec> part_pairs(const std::vector<Vec>& list, int rows, size_t low) {
        const int of_row = int(list.size()) / rows;
        std::vector<Vec> parts(list.size());
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < of_row; i += 2) {
                const Vec &a = list[size_t(r * of_row + i)], &b = list[size_t(r * of_row + i + 1)];
                const Vec upper = vec("upper");
                take(upper, a, b, low, true);
                take(a, a, b, low, false);
                free(b);
                parts[size_t(r * of_row / 2 + i / 2)] = a;
                parts[size_t((rows + r) * of_row / 2 + i / 2)] = upper;
            }
        return parts;
    }
    // Where key i is.
    static std::vector<uint32_t> order_of(const std::array<Bit, 4>& bits) {
        std::vector<uint32_t> order(16);
        for (uint32_t lane = 0; lane < 16; ++lane) {
            uint32_t key = 0;
            for (uint32_t i = 0; i < 4; ++i) key |= (lane >> i & 1) << bits[i].bit;
            order[key] = lane;
        }
        return order;
    }
    void store_scores(const Vec& scores, int row, const std::vector<uint32_t>& order) {
        if (!std::is_sorted(order.begin(), order.end())) permute(scores, order);
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        vmulps(z(scores), z(scores), ptr_b[rax + row * 4]);
        vmovups(ptr[scores_ + row * kBlock * 4], scores);
    }

    // Share `part` of `parts` of what sixteen keys ask for.
    void emit_prefetches(int part, int parts) {
        prefetch_.some(kAmxRows, part, parts);
        if (prefetch_.asks_again()) prefetch_.again(rows_, count_, kAmxRows, part, parts);
    }

    const RowKey key_;
    const KeyAmx form_;
    Prefetch prefetch_;
    const Gpr query_ = gpr("query"), scores_ = gpr("scores"), scales_ = gpr("scales"), count_ = gpr("count"),
              now_ = gpr("sums"), other_ = gpr("next sums"), key_bytes_ = gpr("bytes of a key"),
              lane_bytes_ = gpr("bytes of sums"), row_ = gpr("row");
    RowList rows_{*this, key_, key_.row_bytes(), "rows"};
    const Gpr staged_ = stages() ? gpr("staged") : Gpr();
    const Xbyak::Opmask rest_{3};  // bytes of the last chunk
    std::vector<Vec> acc_;
};

}  // namespace

bool has_key_amx(const quire_format& format, int dim, const Target& target) {
    if (!target.amx || (format.type != QUIRE_INT8 && format.type != QUIRE_INT4)) return false;
    const int of_dword = format.type == QUIRE_INT4 ? 8 : 4;  // elements
    return dim % of_dword == 0 && format.quant_group % of_dword == 0;
}

KeyAmx::KeyAmx(const RowKey& key)
    : rows(key.rows),
      digits(key.query_bytes()),
      parts(key.format.type == QUIRE_INT4 ? 2 : 1),
      part_bytes(key.dim / parts),
      groups(key.groups()),
      group_bytes(key.format.quant_group / parts) {
    constexpr int kLanes = 16, kChunk = 64;
    while (padded_rows < rows) padded_rows *= 2;
    while (together < groups && padded_rows * together < kLanes) together *= 2;
    for (int part = 0; part < parts; ++part)
        for (int at = 0; at < part_bytes; at += kChunk)
            chunks.push_back({part, at, std::min(kChunk, part_bytes - at)});
    for (int set = 0; set < sets(); ++set)
        for (int i = 0; i < int(chunks.size()); ++i) {
            const int first = group_of(chunks[size_t(i)], 0), last = group_of(chunks[size_t(i)], chunks[size_t(i)].bytes - 1);
            if (last >= set * together && first < (set + 1) * together) steps.push_back({set, i});
        }
}

Status generate_qk_amx(const RowKey& key, std::vector<uint8_t>* code) { return QkAmx(key).finish(code); }

}  // namespace quire::jit
