#include <cstddef>

#include "jit/emitter.h"
#include "jit/tile_value_bytes.h"

namespace quire::jit {
namespace {

constexpr int kKeys = 4;  // of a lane; its bytes are of the first, third, second, fourth

// for each run of kWeightRun keys:                        (all tops first: a division is long to wait for)
//   top[w] = largest probability of each lane
//   factors[g][run][w] = top[w] / 255 * tops[run][g]
// for each run, for each four of its keys:
//     words[2][w] = round(p[key][w] * 4096 / top[w]), of two keys each
//     for each group g: weights[g][four][w] = round(words * scales / 2^15), of the four keys
class TileByteWeights : public Emitter {
public:
    explicit TileByteWeights(const RowKey& key)
        : Emitter(*key.target), key_(key), inverse_(vecs("inverse", key.rows)) {
        begin();
        mov(factors_, ptr[args() + offsetof(TileWeightsArgs, factors)]);
        mov(tops_, ptr[args() + offsetof(TileWeightsArgs, tops)]);
        vmovups(constant_, of_pairs() ? splat_bits(0x80008000) : splat(kWhole));
        vmovups(ones_, splat_bits(of_pairs() ? 0x00010001 : 0xffff));
        for_each_run([&] {
            emit_tops();
            add(probabilities_, kWeightRun * key_bytes());
            add(weights_, kWeightRun / kKeys * panel_bytes());
        });
        mov(scales_, ptr[args() + offsetof(TileWeightsArgs, scales)]);
        for_each_run([&] {
            for (int w = 0; w < key_.rows; ++w) {
                vmovups(inverse_[size_t(w)], ptr[inverse_at(w)]);
                if (of_pairs()) vmovups(exponent_[size_t(w)], ptr[exponent_at(w)]);
            }
            for (int i = 0; i < kWeightRun; i += kKeys) emit_four();
        });
        end();
    }

private:
    static constexpr float kWhole = 8388608;  // 2^23: the last bit of a number above is one

    bool of_pairs() const { return takes_bfloat_pairs(key_); }
    int panel_bytes() const { return key_.rows * vec_bytes(); }
    // Of one key; of pairs half of two.
    int key_bytes() const { return panel_bytes() / (of_pairs() ? 2 : 1); }

    template <typename Body>
    void for_each_run(const Body& body) {
        mov(probabilities_, ptr[args() + offsetof(TileWeightsArgs, probabilities)]);
        mov(weights_, ptr[args() + offsetof(TileWeightsArgs, weights)]);
        mov(count_, ptr[args() + offsetof(TileWeightsArgs, count)]);
        Label each;
        L(each);
        body();
        sub(count_, kWeightRun);
        jnz(each, T_NEAR);
    }

    // What the run's weights are made with waits in their memory.
    RegExp inverse_at(int w) const { return weights_ + w * vec_bytes(); }
    RegExp exponent_at(int w) const { return weights_ + panel_bytes() + w * vec_bytes(); }

    void emit_tops() {
        stage("tops");
        const std::vector<Vec> top = vecs("top", key_.rows);
        of_pairs() ? emit_tops_of_pairs(top) : emit_tops_of_floats(top);
        emit_factors(top);
        of_pairs() ? emit_inverse_of_pairs(top) : emit_inverse_of_floats(top);
        for (int w = 0; w < key_.rows; ++w) {
            vmovups(ptr[inverse_at(w)], inverse_[size_t(w)]);
            if (of_pairs()) vmovups(ptr[exponent_at(w)], exponent_[size_t(w)]);
        }
        free(top);
        add(factors_, panel_bytes());
        add(tops_, key_.groups() * 4);
    }

    void emit_factors(const std::vector<Vec>& top) {
        const std::vector<Vec> unit = vecs("unit", key_.rows);
        for (size_t w = 0; w < unit.size(); ++w) vmulps(unit[w], top[w], splat(1 / kLargestByte));
        for (int g = 0; g < key_.groups(); ++g) {
            Temp of_scales(*this, "top of scales"), factor(*this, "factor");
            broadcast(of_scales, ptr[tops_ + g * 4]);
            for (int w = 0; w < key_.rows; ++w) {
                vmulps(factor, of_scales, unit[size_t(w)]);
                vmovups(ptr[factors_ + g * kWeightRuns * panel_bytes() + w * vec_bytes()], *factor);
            }
        }
        free(unit);
    }

    void emit_tops_of_floats(const std::vector<Vec>& top) {
        for (const Vec& v : top) vmovups(v, splat(kLeastTop));
        for (int i = 0; i < kWeightRun * key_.rows; ++i) {
            const Vec& v = top[size_t(i % key_.rows)];
            vmaxps(v, v, ptr[probabilities_ + i * vec_bytes()]);
        }
    }

    void emit_inverse_of_floats(const std::vector<Vec>& top) {
        for (size_t w = 0; w < top.size(); ++w) {
            vmovups(inverse_[w], splat(kWordOfOne));
            vdivps(inverse_[w], inverse_[w], top[w]);
        }
    }

    // As whole numbers, bits of larger probabilities are larger.
    void emit_tops_of_pairs(const std::vector<Vec>& top) {
        for (const Vec& v : top) vmovups(v, splat_bits(kLeastTopBits << 16 | kLeastTopBits));
        for (int i = 0; i < kWeightRun / 2 * key_.rows; ++i) {
            const Vec& v = top[size_t(i % key_.rows)];
            vpmaxuw(v, v, ptr[probabilities_ + i * vec_bytes()]);
        }
        Temp other(*this, "other of the pair");
        for (size_t w = 0; w < top.size(); ++w) {
            vprold(other, top[w], 16);
            vpmaxuw(top[w], top[w], other);
            vpsrlw(exponent_[w], top[w], kMantissaBits);
            vpaddw(exponent_[w], exponent_[w], ones_);
            vpslld(top[w], top[w], 16);
        }
    }

    // Words whose product, rounded, with 128 * mantissa (128..255) of the top is kWordOfOne.
    void emit_inverse_of_pairs(const std::vector<Vec>& top) {
        Temp mantissa(*this, "mantissa");
        for (size_t w = 0; w < top.size(); ++w) {
            bit_and(mantissa, top[w], splat_bits(0x7f0000));
            bit_or(mantissa, mantissa, splat(128));
            vmovups(inverse_[w], splat(kWordOfOne * 32768 / 128));
            vdivps(inverse_[w], inverse_[w], mantissa);
            vcvtps2dq(inverse_[w], inverse_[w]);
            vpslld(mantissa, inverse_[w], 16);
            bit_or(inverse_[w], inverse_[w], mantissa);
        }
    }

    // Of as many vectors of query rows at a time as there are registers for.
    void emit_four() {
        stage("four");
        const int together = num_vecs() == 32 ? key_.rows : 1;
        for (int w = 0; w < key_.rows; w += together) emit_four_of(w, together);
        add(probabilities_, kKeys * key_bytes());
        add(scales_, kKeys * key_.scales_stride() * 4);
        add(weights_, panel_bytes());
    }

    void emit_four_of(int begin, int count) {
        const std::vector<Vec> first = vecs("first two", count), last = vecs("last two", count);
        for (int w = 0; w < count; ++w) {
            emit_words(first[size_t(w)], begin + w, 0);
            emit_words(last[size_t(w)], begin + w, 2);
        }
        for (int g = 0; g < key_.groups(); ++g) {
            Temp first_scales(*this, "first scales"), last_scales(*this, "last scales");
            vpbroadcastd(first_scales, ptr[scales_ + g * 4]);
            vpbroadcastd(last_scales, ptr[scales_ + (2 * key_.scales_stride() + g) * 4]);
            for (int w = 0; w < count; ++w) {
                Temp low(*this, "low"), high(*this, "high");
                vpmulhrsw(low, first_scales, first[size_t(w)]);
                vpmulhrsw(high, last_scales, last[size_t(w)]);
                vpsllw(high, high, 8);
                bit_or(low, low, high);
                const int to = g * tile_byte_weight_stride(key_.rows * lanes()) * 4;
                vmovups(ptr[weights_ + to + (begin + w) * vec_bytes()], *low);
            }
        }
        free(first);
        free(last);
    }

    // Of keys `key` and the next one.
    void emit_words(const Vec& words, int w, int key) {
        const auto at = [&](int k) { return ptr[probabilities_ + k * key_bytes() + w * vec_bytes()]; };
        if (of_pairs()) return emit_words_of_pairs(words, w, at(key));
        Temp second(*this, "second");
        for (const Vec* p : {&words, &*second}) {
            vmovaps(*p, constant_);
            vfmadd231ps(*p, inverse_[size_t(w)], at(p == &words ? key : key + 1));
        }
        join_words(words, words, second, ones_);
    }

    // The mantissa with its leading one, at the upper end of a word, shifted by what the exponent is below
    // the top's: further than a word is long for 0, as kLeastTop is large enough.
    void emit_words_of_pairs(const Vec& words, int w, const Address& at) {
        Temp shift(*this, "shift");
        vmovups(words, at);
        vpsrlw(shift, words, kMantissaBits);
        vpsubw(shift, exponent_[size_t(w)], shift);
        vpsllw(words, words, 15 - kMantissaBits);
        bit_or(words, words, constant_);
        vpsrlvw(words, words, shift);
        vpmulhrsw(words, words, inverse_[size_t(w)]);
    }

    static constexpr int kMantissaBits = 7;
    static constexpr uint32_t kLeastTopBits = 0x0da2;  // kLeastTop (0x0da24260) as a bfloat16 number

    const RowKey key_;
    const std::vector<Vec> inverse_,
        exponent_ = of_pairs() ? vecs("exponent + 1", key_.rows) : std::vector<Vec>();
    // Of pairs their leading ones and a word of one, else kWhole and the mask of a word.
    const Vec constant_ = vec("constant"), ones_ = vec("ones");
    const Gpr probabilities_ = gpr("probabilities"), scales_ = gpr("scales"), weights_ = gpr("weights"),
              count_ = gpr("count"), factors_ = gpr("factors"), tops_ = gpr("tops");
};

}  // namespace

bool takes_bfloat_pairs(const RowKey& key) { return key.bytes() && key.target->bf16; }

Status generate_tile_byte_weights(const RowKey& key, std::vector<uint8_t>* code) {
    return TileByteWeights(key).finish(code);
}

}  // namespace quire::jit
