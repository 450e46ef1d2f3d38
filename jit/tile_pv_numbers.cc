#include "jit/row_loader.h"
#include "jit/tile_pv_few.h"
#include "jit/tile_words.h"

namespace quire::jit {
namespace {

// In the beginning: weights[0][key] = probabilities[key] * scales[key][0], of all query rows
// A pass: for each key:
//           in the last pass: weights[(g + 1) % 2][key] = those of the next group               emit_weights
//           v[2] = its codes as numbers; for r: acc[r][..] += weights[g % 2][key][r] * v[..]    emit_key
//         output[r][d ..] = output[r][d ..] * rescale[r] + acc[r]
//
// Every pass converts the codes anew: that is for other pipes than FMA's. Weights that have just been stored
// are slow to be loaded from: so those of the next group are made, and of one beyond the last.
class TilePvNumberRows : public TilePvFew {
public:
    explicit TilePvNumberRows(const RowKey& key)
        : TilePvFew(key), loader_(RowLoader::make(*this, key.format, step())) {
        generate();
    }

private:
    static constexpr int kUnroll = 4, kOfLines = 2;                       // keys
    static constexpr int kMostTemps = 2, kWeightsBytes = kTileKeys * 64;  // of a group
    static_assert(kKeyPadding % kUnroll == 0 && kUnroll % kOfLines == 0);

    // Of the group whose FMA run, or of the next one.
    void find_weights(const Gpr& at, bool next) {
        static_assert(kWeightsBytes == 1 << 13);
        mov(at, left_);
        if (next) inc(at);
        and_(at, 1);
        shl(at, 13);
        add(at, ptr[args() + offsetof(TilePvArgs, room)]);
    }

    void emit_begin() override {
        stage("first weights");
        mov(scales_, ptr[args() + offsetof(TilePvArgs, scales)]);
        find_weights(next_, false);
        mov(scale_, scales_);
        mov(probabilities_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each;
        L(each);
        emit_weights();
        sub(count_, kUnroll);
        jnz(each, T_NEAR);
    }

    void emit_next_group() override { add(scales_, 4); }

    void emit_pass(int row, int rows, bool is_last) override {
        const std::vector<Vec> acc = vecs("acc", kVecs * rows);
        for (const Vec& v : acc) zero(v);
        pairs_ ? hold_nibble_numbers(kVecs + kMostTemps) : loader_->hold(kVecs + kMostTemps);
        mov(rows_, ptr[args() + offsetof(TilePvArgs, values)]);
        find_weights(weights_, false);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        if (is_last) {
            find_weights(next_, true);
            lea(scale_, ptr[scales_ + 4]);
            mov(probabilities_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        }
        Label each;
        L(each);
        if (is_last) emit_weights();
        for (int key = 0; key < kUnroll; ++key) {
            emit_key(acc, key, row);
            if (key % kOfLines == kOfLines - 1) ahead_.some(kOfLines * int(acc.size()));
        }
        add(rows_, kUnroll * 8);
        add(weights_, kUnroll * vec_bytes());
        sub(count_, kUnroll);
        jnz(each, T_NEAR);
        drop_held();
        for (size_t i = 0; pairs_ && i < acc.size(); i += kVecs) interleave(acc[i], acc[i + 1]);
        emit_output(acc, row, [](int vec) { return vec; });
        free(acc);
    }

    // Of a turn's keys.
    void emit_weights() {
        for (int key = 0; key < kUnroll; ++key) {
            Temp weight(*this, "weight");
            broadcast(weight, ptr[scale_ + key * key_.scales_stride() * 4]);
            vmulps(weight, weight, ptr[probabilities_ + key * vec_bytes()]);
            vmovups(ptr[next_ + key * vec_bytes()], *weight);
        }
        add(next_, kUnroll * vec_bytes());
        add(scale_, kUnroll * key_.scales_stride() * 4);
        add(probabilities_, kUnroll * vec_bytes());
    }

    // Codes of both nibbles of 16 bytes are a load less, and one of 16 dwords, than those of 8 bytes twice.
    void emit_load(const std::vector<Vec>& v, const RegExp& row) {
        if (!pairs_) {
            for (int i = 0; i < kVecs; ++i) loader_->load_codes(v[size_t(i)], i, row);
            return;
        }
        vpmovzxbd(v[0], ptr[row]);
        load_nibble(v[1], v[0], 1);
        load_nibble(v[0], v[0], 0);
    }

    void emit_key(const std::vector<Vec>& acc, int key, int first_row) {
        const std::vector<Vec> v = vecs("v", kVecs);
        mov(row_, ptr[rows_ + key * 8]);
        emit_load(v, row_ + at_);
        Temp weight(*this, "weight");
        for (size_t i = 0; i < acc.size(); ++i) {
            if (i % kVecs == 0)
                broadcast(weight, ptr[weights_ + key * vec_bytes() + (first_row + int(i) / kVecs) * 4]);
            vfmadd231ps(acc[i], weight, v[i % kVecs]);
        }
        free(v);
    }

    const bool pairs_ = key_.format.type == QUIRE_INT4;  // v: the first, third .. elements, and the others
    const std::unique_ptr<RowLoader> loader_;
    const Gpr scales_ = gpr("scales"), row_ = gpr("row"), probabilities_ = gpr("probabilities"),
              scale_ = gpr("scale"), next_ = gpr("next weights");
};

}  // namespace

bool has_tile_pv_number_rows(const RowKey& key) {
    return key.target->vector_bits == 512 && !token_block_info(key.format.type) && key.groups() > 0 &&
           key.numbers() == 1 && scale_group(key.format) % TilePvFew::elements_a_step(*key.target) == 0;
}

Status generate_tile_pv_number_rows(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvNumberRows(key).finish(code);
}

}  // namespace quire::jit
