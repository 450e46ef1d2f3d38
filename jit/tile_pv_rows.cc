#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"
#include "jit/tile_product.h"
#include "jit/tile_words.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

constexpr int kVecs = 2;  // of elements, of one group: what a pair of rows is interleaved to

int elements_a_step(const Target& target) { return kVecs * target.lanes(); }

// The lanes are elements. Values are taken from the rows of the cache: with few query rows packing them costs
// as much as it saves, and a value's element as the broadcast operand is a load for each product.
//
// for each group g, for each 2 L elements d of it:
//   for each pass over R' query rows:                                                    emit_pass
//     for each pair of keys: v[2] = words of both rows                                   emit_pair
//                            for r: acc[r][..] += weights[g][pair][r] . v[..]
//     output[r][d ..] = output[r][d ..] * rescale[r] + acc[r] * factors[r] * tops[g]     emit_output
class TilePvRows : public Emitter {
public:
    explicit TilePvRows(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          loader_(WordLoader::make(*this, key.format, elements_a_step(*key.target))),
          ahead_(*this, *key.target) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(tops_, ptr[args() + offsetof(TilePvArgs, tops)]);
        mov(left_, key_.groups());
        xor_(at_, at_);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_step;
        L(each_group);
        mov(steps_, scale_group(key_.format) / step());
        L(each_step);
        const int passes = (key_.rows + kMostRows - 1) / kMostRows;
        for (int i = 0, row = 0; i < passes; ++i) {
            const int rows = (key_.rows - row + passes - i - 1) / (passes - i);
            emit_pass(row, rows);
            row += rows;
        }
        add(at_, int(bytes_of(key_.format.type, step())));
        add(output_, step() * 4);
        dec(steps_);
        jnz(each_step, T_NEAR);
        add(group_, tile_weight_stride(lanes()) * 4);
        add(tops_, 4);
        dec(left_);
        jnz(each_group, T_NEAR);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    static constexpr int kMostRows = 8, kUnroll = 4;  // pairs of keys
    static_assert(kKeyPadding % (2 * kUnroll) == 0);

    int step() const { return elements_a_step(*key_.target); }

    void emit_pass(int row, int rows) {
        stage("pass from row " + std::to_string(row));
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
        emit_output(acc, row);
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

    void emit_output(const std::vector<Vec>& acc, int first_row) {
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        Temp top(*this, "top"), factor(*this, "factor");
        broadcast(top, ptr[tops_]);
        for (size_t i = 0; i < acc.size(); i += kVecs) {
            const int row = first_row + int(i / kVecs);
            broadcast(factor, ptr[factors_ + row * 4]);
            vmulps(factor, factor, top);
            for (size_t w = 0; w < kVecs; ++w) {
                vcvtdq2ps(acc[i + w], acc[i + w]);
                vmulps(acc[i + w], acc[i + w], factor);
            }
            loader_->restore_order(&acc[i]);
        }
        const auto for_each_vector = [&](const auto& body) {
            for (size_t i = 0; i < acc.size(); ++i) {
                const int row = first_row + int(i / kVecs);
                const int to = row * key_.padded() + loader_->value_vec(int(i % kVecs)) * lanes();
                body(acc[i], row, ptr[output_ + to * 4], i % kVecs == 0);
            }
        };
        const auto rescaled = [&] {
            for_each_vector([&](const Vec& sum, int row, const Address& output, bool is_first) {
                if (is_first) broadcast(factor, ptr[rescale_ + row * 4]);
                vfmadd231ps(sum, factor, output);
            });
        };
        with_rescale(*this, rescale_, rescaled, [] {});
        for_each_vector([&](const Vec& sum, int, const Address& output, bool) { vmovups(output, sum); });
    }

    const RowKey key_;
    const std::unique_ptr<WordLoader> loader_;
    TileAhead ahead_;
    const Gpr output_ = gpr("output"), group_ = gpr("group"), tops_ = gpr("tops"), left_ = gpr("groups left"),
              steps_ = gpr("steps left"), at_ = gpr("at"), rows_ = gpr("rows"), weights_ = gpr("weights"),
              count_ = gpr("count"), first_ = gpr("first row"), second_ = gpr("second row");
    const Gpr &factors_ = weights_, &rescale_ = rows_;  // those are of no more use then
};

}  // namespace

bool has_tile_pv_rows(const RowKey& key) {
    return key.target->vector_bits == 512 && key.target->vnni && has_words(key.format) &&
           scale_group(key.format) % elements_a_step(*key.target) == 0;
}

Status generate_tile_pv_rows(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvRows(key).finish(code);
}

}  // namespace quire::jit
