#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/pack.h"

namespace quire::jit {
namespace {

constexpr int kKeys = 4;  // of a lane

// for each four keys: tile[panel][four][0..16] = their codes, of the other sign where a scale is negative
//
// Hardly a cache has negative scales: they have a loop of their own.
class PackFours : public Emitter {
protected:
    explicit PackFours(const RowKey& key) : Emitter(*key.target), key_(key) {}

    void generate() {
        begin();
        mov(scales_, ptr[args() + offsetof(PackArgs, scales)]);
        mov(count_, ptr[args() + offsetof(PackArgs, count)]);
        emit_constants();
        Label with_signs, done;
        emit_if_negative(with_signs);
        emit_loop(false);
        jmp(done, T_NEAR);
        L(with_signs);
        mov(scales_, ptr[args() + offsetof(PackArgs, scales)]);
        emit_loop(true);
        L(done);
        end();
    }

    virtual void emit_constants() {}
    // Sets the flag Z where no lane has a sign bit.
    virtual void test_signs(const Vec& signs) = 0;
    virtual void emit_four(bool signs) = 0;

    const RowKey key_;
    const Gpr rows_ = gpr("rows"), scales_ = gpr("scales"), tile_ = gpr("tile"), count_ = gpr("count"),
              row_ = gpr("row");

private:
    void emit_if_negative(const Label& then) {
        stage("signs of all");
        Temp signs(*this, "signs");
        zero(signs);
        imul(row_, count_, key_.scales_stride());
        Label each;
        L(each);
        bit_or(signs, signs, ptr[scales_]);
        add(scales_, vec_bytes());
        sub(row_, lanes());
        jnz(each, T_NEAR);
        test_signs(signs);
        jnz(then, T_NEAR);
    }

    void emit_loop(bool signs) {
        mov(rows_, ptr[args() + offsetof(PackArgs, rows)]);
        mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
        Label each_four;
        L(each_four);
        emit_four(signs);
        add(rows_, 8 * kKeys);
        if (signs) add(scales_, kKeys * key_.scales_stride() * 4);
        add(tile_, kFourPanel * 4);
        sub(count_, kKeys);
        jnz(each_four, T_NEAR);
    }
};

// Vectors of 512 bits.
class PackValueBytes : public PackFours {
public:
    explicit PackValueBytes(const RowKey& key)
        : PackFours(key), loader_(ByteLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    int parts() const { return loader_->parts(); }

    void emit_constants() override {
        vmovups(order_, constant({0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
    }
    void test_signs(const Vec& signs) override {
        vpmovd2m(k1, signs);
        kortestw(k1, k1);
    }
    void emit_four(bool signs) override {
        for (int chunk = 0; chunk < loader_->chunks(); ++chunk) emit_chunk(chunk, signs);
    }

    // Of quarter q of part p, byte i is element first(p, q) + i: nibbles of pairs are interleaved, and those
    // of blocks lie so.
    int first(int chunk, int part, int quarter) const {
        return chunk * parts() * vec_bytes() + (quarter * parts() + part) * 16;
    }

    void emit_chunk(int chunk, bool signs) {
        stage("chunk " + std::to_string(chunk));
        const std::vector<Vec> v = vecs("codes", kKeys * parts());
        for (int key = 0; key < kKeys; ++key) {
            const Vec* const k = &v[size_t(key * parts())];
            mov(row_, ptr[rows_ + 8 * kKeysOfLane[key]]);
            loader_->load_signed(k, chunk, row_);
            if (parts() == 2 && !block_info(key_.format.type)) interleave_bytes(k[0], k[1]);
            for (int part = 0; part < parts(); ++part) {
                if (signs) emit_signs(k[part], chunk, part, key);
                const Xbyak::Zmm codes(k[part].getIdx());
                vpermd(codes, Xbyak::Zmm(order_.getIdx()), codes);  // of each quarter, lane q to quarter q
            }
        }
        for (int part = 0; part < parts(); ++part) {
            const std::vector<Vec> fours = {v[size_t(part)], v[size_t(parts() + part)],
                                            v[size_t(2 * parts() + part)], v[size_t(3 * parts() + part)]};
            transpose_bytes(fours);
            for (int quarter = 0; quarter < kKeys; ++quarter) {
                const int element = first(chunk, part, quarter);
                if (element < key_.dim)
                    vmovups(ptr[tile_ + element / kFourPanel * kFourPanelStride * 4], fours[size_t(quarter)]);
            }
        }
        free(v);
    }

    void emit_signs(const Vec& v, int chunk, int part, int key) {
        std::vector<int> groups;
        for (int lane = 0; lane < lanes(); ++lane) {
            const int element = first(chunk, part, lane / 4) + lane % 4 * 4;
            groups.push_back(std::min(element, key_.dim - 1) / scale_group(key_.format));
        }
        Temp sign(*this, "sign");
        load_lanes(sign, scales_ + kKeysOfLane[key] * key_.scales_stride() * 4, groups);
        vpsrad(sign, sign, 31);
        bit_xor(v, v, sign);
        vpsubsb(v, v, sign);
    }

    const std::unique_ptr<ByteLoader> loader_;
    const Vec order_ = vec("order");
};

// INT4 and vectors of 256 bits: 16 elements of four keys at a time, signs of each four and group.
class PackValueNibbles : public PackFours {
public:
    explicit PackValueNibbles(const RowKey& key) : PackFours(key) { generate(); }

private:
    void test_signs(const Vec& signs) override {
        vmovmskps(eax, Xbyak::Ymm(signs.getIdx()));
        test(eax, eax);
    }
    void emit_four(bool signs) override {
        for (int element = 0; element < key_.dim; element += kFourPanel) emit_panel(element, signs);
    }

    void emit_panel(int element, bool signs) {
        Temp even(*this, "even elements"), odd(*this, "odd ones");
        const auto row_at = [&](int key) -> RegExp {
            mov(row_, ptr[rows_ + 8 * kKeysOfLane[key]]);
            return row_;
        };
        load_nibbles_of_four(even, odd, row_at, NibbleBytes::of_row(element / 2, key_.row_bytes()));
        if (signs) emit_signs(even, odd, element / scale_group(key_.format));
        interleave(even, odd);
        const RegExp to = tile_ + element / kFourPanel * kFourPanelStride * 4;
        vmovups(ptr[to], *even);
        vmovups(ptr[to + vec_bytes()], *odd);
    }

    void emit_signs(const Vec& even, const Vec& odd, int group) {
        Temp sign(*this, "sign");
        const Xbyak::Xmm x((*sign).getIdx());
        const auto scale = [&](int key) {
            return ptr[scales_ + (kKeysOfLane[key] * key_.scales_stride() + group) * 4];
        };
        vmovss(x, scale(0));
        for (int key = 1; key < kKeys; ++key) vinsertps(x, x, scale(key), uint8_t(key << 4));
        vpsrad(x, x, 31);
        vpackssdw(x, x, x);
        vpacksswb(x, x, x);
        vpor(x, x, splat_bits(0x01010101));  // 1 or -1
        vpbroadcastd(sign, x);
        vpsignb(even, even, sign);
        vpsignb(odd, odd, sign);
    }
};

}  // namespace

Status generate_pack_value_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return key.target->vector_bits == 256 ? PackValueNibbles(key).finish(code)
                                          : PackValueBytes(key).finish(code);
}

}  // namespace quire::jit
