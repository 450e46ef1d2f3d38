#include "jit/tile_pv_few.h"
#include "jit/tile_value_bytes.h"

namespace quire::jit {
namespace {

// A pass: for each run of keys:
//           for each four of them: v[2] = bytes of four rows, one of each in a lane           emit_values
//                                  for r: acc[r][..] += weights[g][four][r] . v[..]           emit_four
//           sum[r][..] += acc[r][..] * factors[g][run][r]
//         output[r][d ..] = output[r][d ..] * rescale[r] + sum[r]
//
// What the first pass brings side by side the others find where it kept it, in some lines of the first level.
class TilePvByteLists : public TilePvFew {
public:
    explicit TilePvByteLists(const RowKey& key) : TilePvFew(key, kMostRows) { generate(); }

private:
    static constexpr int kKeys = 4;      // of a lane
    static constexpr int kMostRows = 6;  // a row has two sums, and two registers each
    static constexpr int kTemps = 4;     // two of values, what loads them, a weight

    bool is_int4() const { return key_.format.type == QUIRE_INT4; }

    void emit_begin() override {
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
    }

    void emit_next_group() override {
        add(group_, tile_byte_weight_stride(lanes()) * 4);
        add(factors_, kWeightRuns * vec_bytes());
    }

    void emit_pass(int row, int rows, bool) override {
        const std::vector<Vec> sums = vecs("sum", kVecs * rows), acc = vecs("acc", kVecs * rows);
        for (const Vec& v : sums) zero(v);
        is_int4() ? hold_quarters_of_four(kTemps) : hold_bytes_of_four(kTemps);
        if (row == 0) mov(rows_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(kept_, ptr[args() + offsetof(TilePvArgs, room)]);
        lea(weights_, ptr[group_ + row * 4]);
        lea(factor_, ptr[factors_ + row * 4]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_run;
        L(each_run);
        emit_run(sums, acc, row == 0);
        sub(count_, kWeightRun);
        jnz(each_run, T_NEAR);
        drop_held();
        emit_sums(sums);
        emit_output(sums, row, [](int vec) { return vec; });
        free(sums);
        free(acc);
    }

    void emit_run(const std::vector<Vec>& sums, const std::vector<Vec>& acc, bool first) {
        constexpr int kFours = kWeightRun / kKeys;
        for (const Vec& v : acc) zero(v);
        for (int four = 0; four < kFours; ++four) {
            emit_four(acc, four, first);
            ahead_.some(int(acc.size()));
        }
        for (size_t i = 0; i < acc.size(); ++i) {
            vcvtdq2ps(acc[i], acc[i]);
            vfmadd231ps(sums[i], acc[i], ptr_b[factor_ + int(i) / kVecs * 4]);
        }
        if (first) add(rows_, kWeightRun * int(sizeof(const char*)));
        add(kept_, kFours * kVecs * vec_bytes());
        add(weights_, kFours * vec_bytes());
        add(factor_, vec_bytes());
    }

    void emit_four(const std::vector<Vec>& acc, int four, bool first) {
        const std::vector<Vec> v = vecs("v", kVecs);
        if (first) emit_values(v, four);
        for (int w = 0; w < kVecs; ++w) {
            const Address kept = ptr[kept_ + (four * kVecs + w) * vec_bytes()];
            first ? vmovups(kept, v[size_t(w)]) : vmovups(v[size_t(w)], kept);
        }
        for (size_t i = 0; i < acc.size(); i += kVecs) {
            Temp weights(*this, "weights");
            broadcast(weights, ptr[weights_ + four * vec_bytes() + int(i / kVecs) * 4]);
            for (size_t w = 0; w < kVecs; ++w) dot_bytes(acc[i + w], weights, v[w]);
        }
        free(v);
    }

    void emit_values(const std::vector<Vec>& v, int four) {
        const auto row_at = [&](int key) -> RegExp {
            mov(row_, ptr[rows_ + (kKeys * four + kKeysOfLane[key]) * int(sizeof(const char*))]);
            return row_ + at_;
        };
        is_int4() ? load_upper_nibbles_of_four(v[0], v[1], row_at) : load_bytes_of_four(v[0], v[1], row_at);
    }

    // In the order of elements; of nibbles, which were upper ones, as the codes are.
    void emit_sums(const std::vector<Vec>& sums) {
        for (size_t i = 0; i < sums.size(); i += kVecs) {
            interleave(sums[i], sums[i + 1], is_int4() ? 1 : lanes() / 2);
            for (size_t w = 0; is_int4() && w < kVecs; ++w) vmulps(sums[i + w], sums[i + w], splat(1.f / 16));
        }
    }

    const Gpr group_ = gpr("group"), factors_ = gpr("factors"), factor_ = gpr("factor"), row_ = gpr("row"),
              kept_ = gpr("kept");
};

}  // namespace

bool has_tile_pv_byte_lists(const RowKey& key) {
    const int elements = TilePvFew::elements_a_step(*key.target);
    return key.target->vector_bits == 512 && key.target->vbmi && has_tile_value_bytes(key) &&
           (key.format.type == QUIRE_INT8 || key.format.type == QUIRE_INT4) &&
           scale_group(key.format) % elements == 0;
}

Status generate_tile_pv_byte_lists(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvByteLists(key).finish(code);
}

}  // namespace quire::jit
