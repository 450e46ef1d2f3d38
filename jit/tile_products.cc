#include "jit/tile_products.h"

#include <cstddef>

#include "jit/tile_amx.h"
#include "jit/tile_numbers.h"

namespace quire::jit {
namespace {

class TileQk : public TileQkNumbers {
public:
    explicit TileQk(const TileKey& key) : TileQkNumbers(key) {
        begin();
        load_arguments();
        for_seen(offsetof(TileQkArgs, seen), count_, [&] {
            Label each;
            L(each);
            emit_keys([&] { emit_dims(); });
            jnz(each, T_NEAR);
        });
        leave();
    }
};

// for d in 0..8 * panels step n:
//   acc[n][w] = output[d + n][w] * rescale[w]
//   for w0 in 0..W: for key in seen[w0 - 1]..seen[w0], w in w0..W:     (or pairs of keys)
//     acc[n][w] += values[d + n of key] * probabilities[key][w]
//   output[d + n][w] = acc[n][w]
class TilePv : public TileNumbers {
public:
    explicit TilePv(const TileKey& key) : TileNumbers(key) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(panels_, ptr[args() + offsetof(TilePvArgs, panels)]);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_panel;
        L(each_panel);
        for (int d = 0; d < kValuePanel; d += n_) emit_dims(d);
        add(output_, kValuePanel * panel_bytes());
        add(panel_, (key_.bfloats() ? kPairPanelStride : kPanelStride) * 4);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    RegExp output_at(int d, int w) const { return output_ + d * panel_bytes() + w * vec_bytes(); }

    void emit_dims(int d) {
        stage("dims");
        begin_sums(acc_, rescale_, [&](int n, int w) { return output_at(d + n, w); });
        clear_odd();
        mov(probabilities_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        lea(value_, ptr[panel_ + d * 4]);
        for_seen(offsetof(TilePvArgs, seen), count_, [&] {
            emit_each(kUnroll);
            emit_each(1);
        });
        add_odd();
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[output_at(d + n, w)], acc(n, w));
    }

    // For as many of them as count_ has.
    void emit_each(int keys) {
        const int of_count = keys * key_.numbers_a_lane();
        Label each, rest;
        begin_loop(each);
        sub(count_, of_count);
        jl(rest, T_NEAR);
        emit_keys(keys);
        jmp(each, T_NEAR);
        L(rest);
        add(count_, of_count);
    }

    void emit_keys(int keys) {  // or pairs
        for (int i = 0; i < keys; ++i) {
            emit_numbers(i, probabilities_ + i * panel_bytes(),
                         [&](int n) { return value_ + (i * kValuePanel + n) * 4; });
        }
        add(probabilities_, keys * panel_bytes());
        add(value_, keys * kValuePanel * 4);
    }

    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"),
              rescale_ = gpr("rescale"), probabilities_ = gpr("probabilities"), count_ = gpr("count"),
              value_ = gpr("value");
};

}  // namespace

Status generate_tile_qk(const TileKey& key, std::vector<uint8_t>* code) {
    return key.bfloats() && key.target->amx ? generate_tile_qk_amx(key, code) : TileQk(key).finish(code);
}
Status generate_tile_pv(const TileKey& key, std::vector<uint8_t>* code) {
    return key.bfloats() && key.target->amx ? generate_tile_pv_amx(key, code) : TilePv(key).finish(code);
}

}  // namespace quire::jit
