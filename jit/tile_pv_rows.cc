#include "jit/tile_pv_few.h"
#include "jit/tile_words.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// A pass: for each pair of keys: v[2] = words of both rows, interleaved                     emit_pair
//                                for r: acc[r][..] += weights[g][pair][r] . v[..]
//         output[r][d ..] = output[r][d ..] * rescale[r] + acc[r] * factors[r] * tops[g]    emit_numbers
class TilePvRows : public TilePvFew {
public:
    explicit TilePvRows(const RowKey& key)
        : TilePvFew(key), loader_(WordLoader::make(*this, key.format, step())) {
        generate();
    }

private:
    static constexpr int kUnroll = 4;  // pairs of keys
    static_assert(kKeyPadding % (2 * kUnroll) == 0);

    void emit_begin() override {
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(tops_, ptr[args() + offsetof(TilePvArgs, tops)]);
    }

    void emit_next_group() override {
        add(group_, tile_weight_stride(lanes()) * 4);
        add(tops_, 4);
    }

    void emit_pass(int row, int rows, bool) override {
        const std::vector<Vec> acc = vecs("acc", kVecs * rows);
        for (const Vec& v : acc) zero(v);
        mov(rows_, ptr[args() + offsetof(TilePvArgs, values)]);
        lea(weights_, ptr[group_ + row * 4]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each;
        L(each);
        for (int pair = 0; pair < kUnroll; ++pair) {
            emit_pair(acc, pair);
            ahead_.some(int(acc.size()));
        }
        add(rows_, 2 * kUnroll * 8);
        add(weights_, kUnroll * vec_bytes());
        sub(count_, 2 * kUnroll);
        jnz(each, T_NEAR);
        emit_numbers(acc, row);
        emit_output(acc, row, [&](int vec) { return loader_->value_vec(vec); });
        free(acc);
    }

    void emit_pair(const std::vector<Vec>& acc, int pair) {
        const std::vector<Vec> v = vecs("v", kVecs);
        mov(first_, ptr[rows_ + 2 * pair * 8]);
        mov(second_, ptr[rows_ + (2 * pair + 1) * 8]);
        loader_->load_values(v.data(), 0, first_ + at_, second_ + at_);
        for (size_t i = 0; i < acc.size(); i += kVecs) {
            const RegExp at = weights_ + pair * vec_bytes() + int(i / kVecs) * 4;
            Temp weight(*this, "weight");
            broadcast(weight, ptr[at]);
            for (size_t w = 0; w < kVecs; ++w) dot_words(acc[i + w], v[w], weight);
        }
        free(v);
    }

    void emit_numbers(const std::vector<Vec>& acc, int first_row) {
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        Temp top(*this, "top"), factor(*this, "factor");
        broadcast(top, ptr[tops_]);
        for (size_t i = 0; i < acc.size(); i += kVecs) {
            broadcast(factor, ptr[factors_ + (first_row + int(i / kVecs)) * 4]);
            vmulps(factor, factor, top);
            for (size_t w = 0; w < kVecs; ++w) {
                vcvtdq2ps(acc[i + w], acc[i + w]);
                vmulps(acc[i + w], acc[i + w], factor);
            }
            loader_->restore_order(&acc[i]);
        }
    }

    const std::unique_ptr<WordLoader> loader_;
    const Gpr group_ = gpr("group"), tops_ = gpr("tops"), first_ = gpr("first row"),
              second_ = gpr("second row");
    const Gpr& factors_ = weights_;  // those are of no more use then
};

}  // namespace

bool has_tile_pv_rows(const RowKey& key) {
    return key.target->vector_bits == 512 && key.target->vnni && has_words(key.format) &&
           !has_minima(key.format) && scale_group(key.format) % TilePvFew::elements_a_step(*key.target) == 0;
}

Status generate_tile_pv_rows(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvRows(key).finish(code);
}

}  // namespace quire::jit
