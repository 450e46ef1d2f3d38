// What kernels of keys in fours (jit/qk_fours.h) have in common: turns over the keys of a block, and how
// keys, scales and what sums start with get into registers.
#pragma once
#include <array>
#include <cassert>
#include <cstddef>
#include <memory>
#include <vector>

#include "jit/byte_loader.h"
#include "jit/emitter.h"
#include "jit/prefetch.h"
#include "jit/qk_fours.h"
#include "jit/steps.h"

namespace quire::jit {

class FoursEmitter : public Emitter {
protected:
    using Fours = std::vector<std::vector<Vec>>;  // [F][..]
    struct Run {
        int chunk, first;  // j
    };

    explicit FoursEmitter(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          form_(key),
          loader_(ByteLoader::make(*this, key.format, key.dim)),
          prefetch_(*this, key) {}
    virtual ~FoursEmitter() = default;

    virtual void emit_begin() = 0;  // before the first turn
    virtual void emit_turn() = 0;

    void generate() {
        begin();
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(starts_, ptr[args() + offsetof(QkArgs, starts)]);
        mov(factors_, ptr[args() + offsetof(QkArgs, factors)]);
        rows_.set(args() + offsetof(QkArgs, rows));
        prefetch_.turns_of(keys_);
        prefetch_.set(args() + offsetof(QkArgs, next), 0);
        mov(scales_,
            ptr[args() + (reads_scales_ ? offsetof(QkArgs, stored_scales) : offsetof(QkArgs, scales))]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        emit_begin();
        Label each_turn;
        L(each_turn);
        emit_turn();
        rows_.move(keys_);
        prefetch_.move(keys_);
        add(scales_, (reads_scales_ ? key_.scale_bytes() : key_.scales_stride() * 4) * keys_);
        add(scores_, 4 * keys_);
        sub(count_, keys_);
        jnz(each_turn, T_NEAR);
        end();
    }

    bool turns_scales() const { return fours_ == 1; }

    // Share `part` of `parts` of what a turn asks for.
    void emit_prefetches(int part, int parts) {
        prefetch_.some(keys_, part, parts);
        if (!prefetch_.asks_again()) return prefetch_.soon(rows_, keys_, part, parts);
        prefetch_.again(rows_, count_, keys_, part, parts);
    }
    // Whether they come in as many shares as there is occasion for. A processor that is asked for many lines
    // at a time drops some, and has loads wait for others (Zen 5). AVX2 has no room for the six instructions
    // of a share; listed rows of three digits lose by it (docs/performance.md, "From DRAM").
    bool paces() const { return fours_ > 1 && (rows_.side_by_side() || form_.digits < 3); }

    int sets(int chunk) const { return form_.sets(chunk); }

    // k[j] = dword j of each 128 bits of four rows' chunks, the keys side by side; of eight rows' half
    // chunks. Takes five registers, of which it leaves those of k.
    void add_four(Steps* steps, std::vector<Vec>* k, const RowList* rows, int chunk, int four) {
        struct Two {
            Vec low, high;
        };
        const auto of_two = std::make_shared<std::array<Two, 2>>();
        for (int i : {0, 1}) {
            const auto load = [=](bool second) {
                Two& two = (*of_two)[size_t(i)];
                const int first = (form_.is_half(chunk) ? 8 : 4) * four;
                load_row(second ? two.high : two.low, *rows, chunk, first + 2 * i + second);
            };
            for (bool second : {false, true}) steps->add([=] { load(second); });
            steps->add([=] {
                const auto [first, second] = (*of_two)[size_t(i)];
                const Vec low = vec("low");
                vpunpckldq(low, first, second);
                vpunpckhdq(second, first, second);
                free(first);
                (*of_two)[size_t(i)] = {low, second};
            });
        }
        for (Vec Two::*half : {&Two::low, &Two::high})
            steps->add([=] {
                const Vec &a = (*of_two)[0].*half, &b = (*of_two)[1].*half;
                k->push_back(vec("k"));
                vpunpcklqdq(k->back(), a, b);
                vpunpckhqdq(b, a, b);
                k->push_back(b);
                free(a);
            });
    }
    void load_row(Vec& v, const RowList& rows, int chunk, int i) {
        v = vec("row");
        const RegExp row = rows.in_turn(i, row_);
        if (!form_.is_half(chunk)) return loader_->load_packed(v, chunk, row);
        loader_->load_packed(v, row, rows.in_turn(i + 4, rax));
    }

    // numbers[group][t] = the scale of key t, so that loads need no permutation of two cycles (Zen 3).
    void emit_scales() {
        stage("scales of four keys");
        mov(rax, ptr[args() + offsetof(QkArgs, numbers)]);
        for (int group = 0; group < key_.groups() * key_.numbers(); group += 4) {
            const std::vector<Vec> of_key = vecs("scales", 4);
            for (int t = 0; t < 4; ++t)
                load_quarters(of_key[size_t(t)], {scales_ + (t * key_.scales_stride() + group) * 4});
            transpose_dwords(of_key);
            for (int i = 0; i < 4; ++i) {
                inf_to_nan(of_key[size_t(i)]);
                store_quarter(rax + (group + i) * 16, of_key[size_t(i)]);
            }
            free(of_key);
        }
    }

    // scales of a turn's rows, so many turns ahead = those of their blocks (makes_scales). Takes two
    // registers, and leaves none.
    void add_scales(Steps* steps, const RowList* rows, int ahead) {
        constexpr int kWords = 8;  // of a register, two registers a vector
        assert(ahead * keys_ <= kScalesAhead);
        const int groups = key_.groups(), bytes = block_info(key_.format.type)->bytes;
        for (int first = 0; first < keys_ * groups; first += 2 * kWords) {
            const auto halves = std::make_shared<std::array<Vec, 2>>();
            const auto add_words = [=](int at) {
                Vec& half = (*halves)[size_t(at / kWords)];
                if (at % kWords == 0) zero(half = vec("scales"));
                const Xbyak::Xmm words(half.getIdx());
                const RegExp row = rows->in_turn((first + at) / groups, row_);
                for (int i = at; i < at + 2; ++i)
                    vpinsrw(words, words, ptr[row + i % groups * bytes], uint8_t(i % kWords));
            };
            for (int at = 0; at < 2 * kWords; at += 2) steps->add([=] { add_words(at); });
            steps->add([=] {
                const auto [low, high] = *halves;
                const Xbyak::Ymm words(low.getIdx());
                vinserti32x4(words, words, Xbyak::Xmm(high.getIdx()), 1);
                free(high);
                vcvtph2ps(low, words);
            });
            steps->add([=] {
                const Vec scales = (*halves)[0];
                inf_to_nan(scales);
                vmovups(ptr[scales_ + (ahead * keys_ * groups + first) * 4], scales);
                free(scales);
            });
        }
    }

    // numbers[chunk][f][j] = what load_scales gets, by a transposition for all j (FoursForm::keeps_scales).
    RegExp kept_scales(int four, const Run& run) const {
        return rax + ((run.chunk * fours_ + four) * 4 + run.first) * vec_bytes();
    }
    void keep_scales(int chunk) {
        const std::vector<int> groups = loader_->groups(chunk);
        for (int four = 0; four < fours_; ++four) {
            const std::vector<Vec> of_key = vecs("scales", 4);
            const RegExp at = scales_ + (4 * four * key_.scales_stride()) * 4;
            for (int t = 0; t < 4; ++t)
                load_lanes(of_key[size_t(t)], at + t * key_.scales_stride() * 4, groups);
            transpose_dwords(of_key);
            for (const Vec& v : of_key) inf_to_nan(v);
            mov(rax, ptr[args() + offsetof(QkArgs, numbers)]);
            for (int j = 0; j < 4; ++j) vmovups(ptr[kept_scales(four, {chunk, j})], of_key[size_t(j)]);
            free(of_key);
        }
    }

    // Lane 4 i + t: the scale of key t and of the group of dword 4 i + j; of the keys of a set.
    void load_scales(const Vec& scale, int set, const Run& run, int from = 0) {
        if (!form_.is_half(run.chunk)) return load_scales_of_four(scale, set, run, from);
        load_scales_of_four(scale, 2 * set, run, from);
        Temp of_next(*this, "scales of the next four");
        load_scales_of_four(of_next, 2 * set + 1, run, from);
        const Xbyak::Zmm both(scale.getIdx());
        vshuff64x2(both, both, Xbyak::Zmm((*of_next).getIdx()), 0xe4);
    }
    void load_scales_of_four(const Vec& scale, int four, const Run& run, int from) {
        if (reads_scales_) return read_scales_of_four(scale, four, run);
        if (form_.keeps_scales) {
            mov(rax, ptr[args() + offsetof(QkArgs, numbers)]);
            return vmovups(scale, ptr[kept_scales(four, run)]);
        }
        const std::vector<int> groups = loader_->groups(run.chunk);
        if (turns_scales()) {
            std::vector<RegExp> at;
            mov(rax, ptr[args() + offsetof(QkArgs, numbers)]);
            for (int lane = run.first; lane < lanes(); lane += 4)
                at.push_back(rax + groups[size_t(lane)] * 16);
            const bool same = groups[size_t(run.first)] == groups[size_t(lanes() - 4 + run.first)];
            return same ? broadcast_quarter(scale, at[0]) : load_quarters(scale, at);
        }
        const int stride = key_.scales_stride(), first = groups[size_t(run.first)];
        const RegExp at = scales_ + (from + 4 * four * stride + first) * 4;
        std::vector<int> index;  // of a key's scales
        for (int lane = 0; lane < lanes(); ++lane)
            index.push_back(groups[size_t(lane / 4 * 4 + run.first)] - first);
        if (4 * stride <= lanes()) {
            for (int lane = 0; lane < lanes(); ++lane) index[size_t(lane)] += lane % 4 * stride;
            load_lanes(scale, at, index);
        } else {  // runs that have scales of their own dwords each are kept: others' chunks have eight at
                  // most
            load_lanes_of_eights(scale, at, stride * 4, index);
        }
        inf_to_nan(scale);
    }

    // As the cache has them: two groups of all the turn's keys, or all groups of the four.
    void read_scales_of_four(const Vec& scale, int four, const Run& run) {
        const std::vector<int> groups = loader_->groups(run.chunk);
        const int of_key = key_.groups(), first = of_key == 2 ? 0 : 4 * four, keys = of_key == 2 ? keys_ : 4;
        std::vector<int> index;
        for (int lane = 0; lane < lanes(); ++lane)
            index.push_back((4 * four - first + lane % 4) * of_key +
                            groups[size_t(lane / 4 * 4 + run.first)]);
        load_half_lanes(scale, scales_ + first * key_.scale_bytes(), index, keys * of_key);
        inf_to_nan(scale);
    }

    // The same of minima (512 bits).
    void load_minima(const Vec& v, int set, const Run& run) { load_scales(v, set, run, key_.minima_at()); }
    // v = -zero * what the query's numbers add up to, those of sum `sum`: of three digits the two starts are
    // of the first and of the others, and `other` is another register.
    void load_query_sum(const Vec& v, int sum, const Vec& other) {
        const auto start = [&](int chain) {
            return ptr[starts_ + (sum * form_.chains() + chain) * vec_bytes()];
        };
        vcvtdq2ps(v, start(form_.chains() - 1));
        if (form_.digits < 3) return;
        vcvtdq2ps(other, start(0));
        vfmadd231ps(v, other, splat(65536));
    }

    int vector_of(const Run& run, int row) const {
        return row * form_.vectors() + (run.chunk * 4 + run.first) * form_.parts * form_.digits;
    }
    int sum_of(const Run& run, int row) const {
        return row * form_.sums() + run.chunk * form_.runs() + run.first / form_.run;
    }

    void load_starts(const std::vector<Vec>& sums, int vector) {
        for (size_t f = 0; f < sums.size(); ++f)
            f == 0 ? vmovups(sums[0], ptr[starts_ + vector * vec_bytes()]) : vmovaps(sums[f], sums[0]);
    }

    void emit_dots(const std::vector<Vec>& sums, const Fours& codes, int i, int vector, int digit) {
        const RegExp at = query_ + (vector + i * form_.digits + digit) * vec_bytes();
        Temp q(*this, "q");
        vmovups(q, ptr[at]);
        for (size_t f = 0; f < sums.size(); ++f) dot_bytes(sums[f], codes[f][size_t(i)], q);
    }

    // Before the first turn, of its keys.
    void begin_ahead() {
        steps_.finish();
        first_ = flat(next_);
    }
    // A turn ends with keys where it begins with them.
    void end_ahead() {
        steps_.finish();
        std::vector<Vec> all = flat(next_);
        move(&all, first_);
        auto moved = all.begin();
        for (std::vector<Vec>& of_four : next_)
            for (Vec& v : of_four) v = *moved++;
    }
    static std::vector<Vec> flat(const Fours& fours) {
        std::vector<Vec> all;
        for (const std::vector<Vec>& four : fours) all.insert(all.end(), four.begin(), four.end());
        return all;
    }

    // scores = the sums of the lanes of a key, times the row's factor. Frees them. Behind hold_upper_half().
    void store_scores(const Fours& acc, int first) {
        constexpr int kKeys = 8;  // of a set of half chunks
        if (form_.is_half(0))
            for (int set = 0; set < sets(0); ++set) {
                Fours of_set;
                for (const std::vector<Vec>& of_row : acc) of_set.push_back({of_row[size_t(set)]});
                store_rows(of_set, first, set * kKeys);
            }
        else
            store_rows(acc, first, 0);
        for (const std::vector<Vec>& of_row : acc) free(of_row);
    }

    const RowKey key_;
    const FoursForm form_;
    const int fours_ = form_.fours();
    const int keys_ = 4 * fours_;  // of a turn
    const bool reads_scales_ = reads_scales(key_);
    const std::unique_ptr<ByteLoader> loader_;
    Prefetch prefetch_;
    const Gpr query_ = gpr("query"), starts_ = gpr("starts"), factors_ = gpr("factors"),
              scales_ = gpr("scales"), scores_ = gpr("scores"), count_ = gpr("count"), row_ = gpr("row");
    RowList rows_{*this, key_, key_.row_bytes(), "rows"},
        ahead_rows_{*this, key_, key_.row_bytes(), "rows ahead"};
    Fours next_;              // keys that are on their way
    std::vector<Vec> first_;  // the registers of those that a turn begins with
    Steps steps_{*this};

private:
    bool has_factor() const { return form_.digits > 1 || form_.has_unit(); }
    RegExp factor_of(int row) const {
        return form_.digits > 1 ? factors_ + row * 4
                                : factors_ + (row * form_.factors() + form_.words()) * vec_bytes();
    }
    RegExp scores_at(int row, int key) const { return scores_ + (row * kBlock + key) * 4; }
    // Of keys from `key` of the turn on.
    void store_rows(const Fours& acc, int first, int key) {
        for (size_t r = 0, rows = 0; r < acc.size(); r += rows) {
            rows = fours_ > 1 && r + 1 < acc.size() ? 2 : 1;
            rows == 2 ? store_two(acc[r], acc[r + 1], first + int(r), key)
                      : store_one(acc[r], first + int(r), key);
        }
    }
    void store_one(const std::vector<Vec>& acc, int row, int key) {
        add_quarters(acc);
        if (has_factor()) multiply_by_scalar(acc[0], factor_of(row));
        fours_ == 1 ? store_quarter(scores_at(row, key), acc[0]) : store_half(scores_at(row, key), acc[0], 0);
    }
    void store_two(const std::vector<Vec>& acc, const std::vector<Vec>& next, int row, int key) {
        add_quarters(acc, next);
        if (has_factor()) {
            Temp factors(*this, "factors");
            broadcast_halves(factors, factor_of(row), factor_of(row + 1), false);
            vmulps(acc[0], acc[0], factors);
        }
        for (int half : {0, 1}) store_half(scores_at(row + half, key), acc[0], half);
    }
};

}  // namespace quire::jit
