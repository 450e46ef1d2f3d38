// Probabilities for weights that are bytes of which each four keys have a factor
// (jit/weights_bytes_emitter.h).
#include <cstddef>

#include "jit/weights_bytes_emitter.h"

namespace quire::jit {

void WeightsBytesEmitter::emit_probabilities_by_fours(int row, int rows) {
    stage("probabilities from row " + std::to_string(row));
    const Gpr turn = gpr("turn");
    mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
    if (row > 0) add(probabilities_, row * kBlock * 4);
    mov(turn, weights_);
    hold_order();
    mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
    Label each;
    L(each);
    emit_fours(row, rows, turn);
    add(probabilities_, kTurn * 4);
    add(turn, ValueBytes::kTurnBytes);
    sub(count_, kTurn);
    jnz(each, T_NEAR);
    drop_order();
    free(turn);
}

// Two of them, of up to four rows; what is one number a row and four of all rows together.
void WeightsBytesEmitter::emit_fours(int row, int rows, const Gpr& turn) {
    const float unit = float(form_.form.most_factor);
    const std::vector<Vec> p = vecs("p", rows), t = vecs("of shares", kTransposed);
    vmovups(t[0], ptr[turn + form_.shares_at()]);
    for (int r = rows - 1; r >= 0; --r) {
        load_ordered(p[size_t(r)], row_at(r));
        vmulps(t[size_t(r)], p[size_t(r)], t[0]);
    }
    const auto of = [&](int r) { return t[size_t(r < rows ? r : 0)]; };
    const Vec &first = t[0], &last = t[2], &top = t[1], &second = t[3];
    vhaddps(y(first), y(of(0)), y(of(1)));  // sums of two keys: two of a row
    if (rows > 2) vhaddps(y(last), y(of(2)), y(of(3)));
    const Vec& others = rows > 2 ? last : first;
    vshufps(y(second), y(first), y(others), 0xdd);
    vshufps(y(top), y(first), y(others), 0x88);
    vmaxps(top, top, second);
    vmovups(first, splat(1));
    vfmadd132ps(top, first, splat(unit / of_scale()));
    vcvttps2dq(y(top), y(top));
    vcvtdq2ps(second, top);
    vmovups(first, splat(of_probability() * unit));
    vdivps(first, first, second);
    for (int r = 0; r < rows; ++r) {
        const auto of_row = uint8_t(r * 0x55);
        vpermilps(second, first, of_row);
        store_words_of(p[size_t(r)], second, turn + form_.probabilities_at(row + r));
        vpermilps(second, top, of_row);
        vpackssdw(second, second, second);
        for (int four = 0; four < 2; ++four) {
            vperm2f128(y(last), y(second), y(second), four ? 0x11 : 0x00);
            vmovups(ptr[turn + form_.runs_at(row + r, four)], last);
        }
    }
    free(p);
    free(t);
}

}  // namespace quire::jit
