#include "jit/qk_fours.h"

#include <algorithm>

#include "jit/qk_digits.h"
#include "jit/qk_fours_emitter.h"

namespace quire::jit {
namespace {

// for each turn of F fours of keys:                                                   emit_turn
//   for each pass over R' of the query rows, for each chunk of the rows:              emit_chunk
//     prefetch a share of the next block's rows, and of the next turn's, in the first pass
//     k[f][j] = dword j of four keys' codes, from 0 on (byte loader)                  take_keys
//     for each run of j:                                                              emit_run
//       scale[f] = that of the lane's key and group                                   load_scales
//       for r: sum[f] = starts[r] + dot products of query[r][j] and k[f][j], in int32 emit_dots
//              acc[r][f] += float(sum[f]) * scale[f]      (bytes: * factors[r])
//     (bytes without VNNI: sums of words, times factors that are words, too           emit_words)
//     (bytes, where all runs share a scale: what they sum to is scaled                emit_runs
//      or of two parts: two runs in a lane are a pair of words, whose dot product
//      with those of their factors adds them up)                                      emit_joined
//     (one pass: meanwhile those of the next chunk, or of the next turn, are loaded   follow_dots)
//   scores[r] = sums of the lanes of a key (digits: * factors[r])                     store_scores
//
// F is 1 for a half chunk behind others, to whose sums its own are added as halves of a vector. A row that is
// one comes in fours of eight keys, two of them a turn.
//
// So a conversion and an FMA serve four dot products of four keys, and lanes are summed for four at a time.
// Two digits: sum = 256 * that of the high ones + that of the low ones; 2^15 * 2^8 * 32 elements < 2^31.
// Three: one chain of int32 holds 256 * that of the high ones + that of the middle ones, within the same, and
// another that of the low ones; float(first) * 256 + float(second).
//
// Joined runs: sums of 8 codes below 16 times a byte are words (kSpanZero); totals may wrap around on their
// way, and are within 4 * 16384 * 8128 < 2^31 in the end.
// Weighed words: two codes of 8 bits times a byte of the query, 255 * 63 * 2, are a word, and so are four of
// 4 bits, 15 * 127 * 4; totals, too, may wrap around, and are within 8 * 16384 * (128 * 63 * 2) < 2^31.
//
// live: acc[R' * F] + k[4 * F], and a run's second parts + scale[F] + sums[F] (digits, joined: two) + q, or
//       words of each part; three: + 256, joined: + what second sums start with
class QkFours : public FoursEmitter {
public:
    explicit QkFours(const RowKey& key) : FoursEmitter(key) { generate(); }

private:
    struct Pass {
        int row, rows;
    };

    bool loads_ahead() const { return form_.loads_ahead(key_.rows); }
    int rows_a_pass() const { return form_.rows_a_pass(key_.rows); }

    void emit_begin() override {
        if (fours_ > 1) hold_upper_half();
        if (form_.digits == 3) vmovups(base_ = vec("digit's base"), splat(256));
        if (form_.joins_runs) vmovups(base_ = vec("second sums' start"), splat_bits(kSpanZero));
        loader_->hold(form_.spare(rows_a_pass()));
        if (!loads_ahead()) return;
        ahead_rows_.follow(rows_);
        begin_keys(&ahead_rows_, 0, 0);
        begin_ahead();
    }

    void emit_turn() override {
        if (!loads_ahead()) rows_.turn(row_);
        if (turns_scales()) emit_scales();
        for (int row = 0; row < key_.rows; row += rows_a_pass()) {
            const Pass pass = {row, std::min(rows_a_pass(), key_.rows - row)};
            Fours acc;  // [R'][F]
            for (int r = 0; r < pass.rows; ++r) acc.push_back(vecs("acc", sets(0)));
            for (const std::vector<Vec>& of_row : acc)
                for (const Vec& v : of_row) zero(v);
            for (int chunk = 0; chunk < form_.chunks; ++chunk) {
                if (chunk > 0 && form_.is_half(chunk)) join_halves(&acc);
                emit_chunk(acc, chunk, pass);
            }
            if (loads_ahead()) end_ahead();
            store_scores(acc, pass.row);
        }
    }

    // Of a chunk, in steps; with the first one the scales of the turn, which is `ahead` turns ahead.
    void begin_keys(RowList* rows, int chunk, int ahead) {
        rows->turn(row_);
        if (chunk == 0 && makes_scales(key_)) add_scales(&steps_, rows, ahead);
        next_.assign(size_t(sets(chunk)), {});
        for (int f = 0; f < sets(chunk); ++f) add_four(&steps_, &next_[size_t(f)], rows, chunk, f);
    }
    Fours take_keys(int chunk) {
        if (!loads_ahead()) begin_keys(&rows_, chunk, 0);
        steps_.finish();
        const Fours k = next_;
        if (!loads_ahead()) return k;
        const bool last = chunk + 1 == form_.chunks;
        if (last) ahead_rows_.follow(rows_, keys_, count_);
        begin_keys(&ahead_rows_, last ? 0 : chunk + 1, 1);
        occasion_ = 0;
        return k;
    }

    // As the sums of a half chunk are.
    void join_halves(Fours* acc) {
        for (std::vector<Vec>& of_row : *acc) {
            add_halves(of_row[0], of_row[1]);
            free({of_row[1]});
            of_row.pop_back();
        }
    }

    void emit_chunk(const Fours& acc, int chunk, const Pass& pass) {
        stage("chunk " + std::to_string(chunk) + ", rows from " + std::to_string(pass.row));
        if (pass.row == 0 && !paces()) emit_prefetches(chunk, form_.chunks);
        if (pass.row == 0 && form_.keeps_scales) keep_scales(chunk);  // while registers are free
        const Fours k = take_keys(chunk);
        if (form_.runs_share_scale)
            emit_runs(acc, k, chunk, pass);
        else if (form_.joins_runs)
            emit_run(acc, k, {chunk, 0}, pass);
        else
            for (int first = 0; first < 4; first += form_.run) emit_run(acc, k, {chunk, first}, pass);
        if (loads_ahead()) return;  // freed, one by one
        for (const std::vector<Vec>& four : k) free(four);
    }

    void emit_dots_and_steps(const std::vector<Vec>& sums, const Fours& codes, int i, int vector, int digit,
                             int row) {
        emit_dots(sums, codes, i, vector, digit);
        follow_dots(codes, i, digit, row);
    }
    // What the dots of codes i are followed by.
    void follow_dots(const Fours& codes, int i, int digit, int row) {
        if (!loads_ahead()) return;
        if (row + 1 == key_.rows && digit + 1 == form_.digits)
            for (const std::vector<Vec>& of_four : codes) {
                free(of_four[size_t(i)]);
                if (runs_left_ && i % form_.parts > 0) ++of_next_run_;
            }
        constexpr int kOfRow = 1;  // free registers that the rest of a row takes
        steps_.on_occasion(occasion_++, key_.rows * 4 * form_.parts * form_.digits, kOfRow + of_next_run_);
    }

    // In the first pass, before row r of it, of what is asked for with run `part` of `parts` of the chunk.
    void emit_share(const Pass& pass, int r, int chunk, int part, int parts) {
        if (!paces() || pass.row > 0) return;
        const int each = parts * (rows_.side_by_side() ? 1 : 2);  // of the occasions in a chunk
        const int shares = (parts * pass.rows + each - 1) / each, at = part * pass.rows + r;
        if (at % each == 0) emit_prefetches(chunk * shares + at / each, form_.chunks * shares);
    }

    // [j, part] of `count` dwords of four keys from the first on; second parts have registers of their own.
    std::vector<Vec> unpack(const std::vector<Vec>& k, int first, int count, std::vector<Vec>* second) {
        std::vector<Vec> codes;
        for (int j = first; j < first + count; ++j) {
            Vec parts[2] = {k[size_t(j)], Vec()};
            if (form_.parts == 2) second->push_back(parts[1] = vec("second part"));
            loader_->unpack(parts);
            codes.insert(codes.end(), parts, parts + form_.parts);
        }
        return codes;
    }

    void emit_run(const Fours& acc, const Fours& k, const Run& run, const Pass& pass) {
        const std::vector<Vec> scales = vecs("scale", sets(run.chunk)), minima = load_all_minima(run);
        std::vector<Vec> second;
        runs_left_ = !form_.joins_runs && run.first + form_.run < 4;
        of_next_run_ = 0;
        Fours codes;
        for (int f = 0; f < sets(run.chunk); ++f) {
            load_scales(scales[size_t(f)], f, run);
            codes.push_back(unpack(k[size_t(f)], run.first, form_.joins_runs ? 4 : form_.run, &second));
        }
        for (int r = 0; r < pass.rows; ++r) {
            emit_share(pass, r, run.chunk, run.first / form_.run, form_.joins_runs ? 1 : form_.runs());
            if (form_.joins_runs)
                emit_joined(acc[size_t(r)], codes, scales, run.chunk, pass.row + r);
            else if (form_.weighs_words)
                emit_words(acc[size_t(r)], codes, scales, run, pass.row + r);
            else
                emit_row(acc[size_t(r)], codes, scales, run, pass.row + r);
            add_minima(acc[size_t(r)], minima, run, pass.row + r);
        }
        if (!loads_ahead()) free(second);
        free(scales);
        free(minima);
    }

    std::vector<Vec> load_all_minima(const Run& run) {
        const std::vector<Vec> minima = vecs("minima", form_.has_minima ? sets(run.chunk) : 0);
        for (size_t f = 0; f < minima.size(); ++f) load_minima(minima[f], int(f), run);
        return minima;
    }

    // acc += minima, if there are, * what the numbers of the run, or of all runs that share a scale, add up
    // to.
    void add_minima(const std::vector<Vec>& acc, const std::vector<Vec>& minima, const Run& run, int row) {
        if (minima.empty()) return;
        Temp sum(*this, "sum of the query"), part(*this, "part of it");
        const auto factor = [&](int i) { return ptr[factors_ + i * vec_bytes()]; };
        const int first = sum_of(run, row);
        load_query_sum(sum, first, part);
        if (form_.digits == 1) vmulps(sum, sum, factor(first));
        for (int i = first + 1; form_.runs_share_scale && i < first + form_.runs(); ++i) {
            load_query_sum(part, i, part);
            vfmadd231ps(sum, part, factor(i));
        }
        for (size_t f = 0; f < acc.size(); ++f) vfmadd231ps(acc[f], *sum, minima[f]);
    }

    void emit_runs(const Fours& acc, const Fours& k, int chunk, const Pass& pass) {
        const std::vector<Vec> scales = vecs("scale", sets(chunk)), minima = load_all_minima({chunk, 0});
        std::vector<Vec> second;
        Fours codes;
        for (int f = 0; f < sets(chunk); ++f) {
            load_scales(scales[size_t(f)], f, {chunk, 0});
            codes.push_back(unpack(k[size_t(f)], 0, 4, &second));
        }
        for (int r = 0; r < pass.rows; ++r) {
            emit_share(pass, r, chunk, 0, 1);
            const std::vector<Vec> total = vecs("total", sets(chunk));
            for (int first = 0; first < 4; first += form_.run)
                emit_run_of_bytes(total, codes, {chunk, first}, pass.row + r);
            for (size_t f = 0; f < total.size(); ++f) vfmadd231ps(acc[size_t(r)][f], total[f], scales[f]);
            free(total);
            add_minima(acc[size_t(r)], minima, {chunk, 0}, pass.row + r);
        }
        if (!loads_ahead()) free(second);
        free(scales);
        free(minima);
    }

    // The first run begins the total.
    void emit_run_of_bytes(const std::vector<Vec>& total, const Fours& codes, const Run& run, int row) {
        const std::vector<Vec> sums = vecs("sum", sets(run.chunk));
        load_starts(sums, sum_of(run, row));
        for (int i = run.first * form_.parts; i < (run.first + form_.run) * form_.parts; ++i)
            emit_dots_and_steps(sums, codes, i, vector_of({run.chunk, 0}, row), 0, row);
        Temp factor(*this, "factor");
        vmovups(factor, ptr[factors_ + sum_of(run, row) * vec_bytes()]);
        for (size_t f = 0; f < sums.size(); ++f) {
            vcvtdq2ps(sums[f], sums[f]);
            run.first == 0 ? vmulps(total[f], sums[f], factor) : vfmadd231ps(total[f], sums[f], factor);
        }
        free(sums);
    }

    void emit_row(const std::vector<Vec>& acc, const Fours& codes, const std::vector<Vec>& scales,
                  const Run& run, int row) {
        const int vector = vector_of(run, row), sum = sum_of(run, row);
        const int F = sets(run.chunk);
        const std::vector<Vec> low = vecs("sum", F), high = vecs("high", form_.digits > 1 ? F : 0);
        if (form_.digits == 3) {
            load_starts(high, sum * 2);
            for (int i = 0; i < form_.run * form_.parts; ++i)
                emit_dots_and_steps(high, codes, i, vector, 0, row);
            for (const Vec& v : high) vpslld(v, v, 8);
        } else {
            for (const Vec& v : high) zero(v);
        }
        load_starts(low, (sum + 1) * form_.chains() - 1);
        for (int i = 0; i < form_.run * form_.parts; ++i) {
            if (form_.digits > 1) emit_dots_and_steps(high, codes, i, vector, form_.digits - 2, row);
            emit_dots_and_steps(low, codes, i, vector, form_.digits - 1, row);
        }
        emit_numbers(low, high);
        if (form_.digits == 1) {
            Temp factor(*this, "factor");
            vmovups(factor, ptr[factors_ + sum * vec_bytes()]);
            for (const Vec& v : low) vmulps(v, v, factor);
        }
        for (size_t f = 0; f < low.size(); ++f) vfmadd231ps(acc[f], low[f], scales[f]);
        free(high);
        free(low);
    }

    void emit_joined(const std::vector<Vec>& acc, const Fours& codes, const std::vector<Vec>& scales,
                     int chunk, int row) {
        const std::vector<Vec> totals = vecs("total", sets(chunk)), sums = vecs("sum", sets(chunk));
        const int vector = vector_of({chunk, 0}, row);
        load_starts(totals, row * form_.starts() + chunk);
        for (int pair = 0; pair < 2; ++pair) {
            for (const Vec& v : sums) zero(v);
            for (int i = 0; i < 2 * form_.parts; ++i) {
                if (i == form_.parts)
                    for (const Vec& v : sums) raise_words(v, base_);
                emit_dots_and_steps(sums, codes, 2 * pair * form_.parts + i, vector, 0, row);
            }
            Temp factor(*this, "factors");
            vmovups(factor, ptr[factors_at(row, 2 * chunk + pair)]);
            for (size_t f = 0; f < sums.size(); ++f) dot_words(totals[f], sums[f], factor);
        }
        for (size_t f = 0; f < sums.size(); ++f) {
            vcvtdq2ps(totals[f], totals[f]);
            vfmadd231ps(acc[f], totals[f], scales[f]);
        }
        free(sums);
        free(totals);
    }

    void emit_words(const std::vector<Vec>& acc, const Fours& codes, const std::vector<Vec>& scales,
                    const Run& run, int row) {
        const std::vector<Vec> sums = vecs("sum", sets(run.chunk));
        load_starts(sums, sum_of(run, row));
        for (int j = 0; j < form_.run; ++j)
            for (size_t f = 0; f < sums.size(); ++f) {
                const Vec* const of_j = &codes[f][size_t(j * form_.parts)];
                const RegExp query = query_ + (vector_of(run, row) + j * form_.parts) * vec_bytes();
                Temp words(*this, "words");
                multiply_bytes(words, {of_j, of_j + form_.parts}, query);
                const RegExp factors = factors_at(row, 4 * run.chunk + run.first + j);
                if (key_.target->vnni) {
                    dot_words(sums[f], words, ptr[factors]);
                } else {
                    vpmaddwd(words, words, ptr[factors]);
                    vpaddd(sums[f], sums[f], words);
                }
                if (f + 1 < sums.size()) continue;
                for (int part = 0; part < form_.parts; ++part)
                    follow_dots(codes, j * form_.parts + part, 0, row);
            }
        for (size_t f = 0; f < sums.size(); ++f) {
            vcvtdq2ps(sums[f], sums[f]);
            vfmadd231ps(acc[f], sums[f], scales[f]);
        }
        free(sums);
    }

    RegExp factors_at(int row, int vector) const {
        return factors_ + (row * form_.factors() + vector) * vec_bytes();
    }

    // The sums of all digits as numbers, in `low`.
    void emit_numbers(const std::vector<Vec>& low, const std::vector<Vec>& high) {
        for (size_t f = 0; f < low.size(); ++f) {
            if (form_.digits == 2) {
                vpslld(high[f], high[f], 8);
                vpaddd(low[f], low[f], high[f]);
            }
            vcvtdq2ps(low[f], low[f]);
            if (form_.digits == 3) {
                vcvtdq2ps(high[f], high[f]);
                vfmadd231ps(low[f], high[f], base_);
            }
        }
    }

    int occasion_ = 0;
    bool runs_left_ = false;
    int of_next_run_ = 0;  // registers that are free, and that the next run's second parts take
    Vec base_;
};

}  // namespace

Status generate_qk_fours(const RowKey& key, std::vector<uint8_t>* code) {
    if (has_whole_rows(FoursForm(key))) return generate_qk_digits(key, code);
    return QkFours(key).finish(code);
}

}  // namespace quire::jit
