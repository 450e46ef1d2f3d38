#include "jit/tile_rows.h"

#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

// What both directions have in common: squares of L rows and L elements, the last one with what is left.
class TileSquares : public Emitter {
protected:
    TileSquares(const Target& target, quire_type type, int dim)
        : Emitter(target), type_(type), dim_(dim), x_(vecs("x", target.lanes())) {}

    // square(elements) for each; rows_at moves on by itself, columns_ by square.
    template <typename Square>
    void emit_squares(const Square& square) {
        const int whole = dim_ / lanes(), left = dim_ % lanes();
        xor_(at_, at_);
        if (whole > 0) {
            Label each;
            mov(left_, whole);
            L(each);
            square(lanes());
            add(at_, lanes() * type_bits(type_) / 8);
            dec(left_);
            jnz(each, T_NEAR);
        }
        if (left > 0) square(left);
    }

    // Element 0 of the square, of row r.
    RegExp row_at(int r) {
        mov(row_, ptr[rows_ + r * 8]);
        return row_ + at_;
    }

    const quire_type type_;
    const int dim_;
    const Gpr rows_ = gpr("rows"), columns_ = gpr("columns"), stride_ = gpr("stride"), row_ = gpr("row"),
              at_ = gpr("at"), left_ = gpr("left");
    const std::vector<Vec> x_;
};

// for d in 0..dim step L:
//   x[r] = rows[r][d ..], for L rows; transposed
//   columns[d + i] = x[i] * factor
class TileRows : public TileSquares {
public:
    TileRows(const Target& target, quire_type type, int dim) : TileSquares(target, type, dim) {
        begin();
        mov(rows_, ptr[args() + offsetof(TileRowsArgs, rows)]);
        mov(columns_, ptr[args() + offsetof(TileRowsArgs, columns)]);
        mov(stride_, ptr[args() + offsetof(TileRowsArgs, stride)]);
        Temp factor(*this, "factor");
        broadcast(factor, ptr[args() + offsetof(TileRowsArgs, factor)]);
        emit_squares([&](int elements) {
            for (int r = 0; r < lanes(); ++r) load_number(type_, x_[size_t(r)], row_at(r), elements);
            transpose(x_);
            for (int i = 0; i < elements; ++i) {
                vmulps(x_[size_t(i)], x_[size_t(i)], factor);
                vmovups(ptr[columns_], x_[size_t(i)]);
                add(columns_, stride_);
            }
        });
        end();
    }
};

// for d in 0..dim step L:
//   x[i] = columns[d + i] * factors; poison[i % 4] += x[i] * 0    (of one alone each would wait for another)
//   rows[r][d ..] = x[r], transposed
class TileColumns : public TileSquares {
public:
    TileColumns(const Target& target, quire_type type, int dim) : TileSquares(target, type, dim) {
        begin();
        mov(rows_, ptr[args() + offsetof(TileColumnsArgs, rows)]);
        mov(columns_, ptr[args() + offsetof(TileColumnsArgs, columns)]);
        mov(stride_, ptr[args() + offsetof(TileColumnsArgs, stride)]);
        const Gpr lanes_at = gpr("lanes at");
        mov(lanes_at, ptr[args() + offsetof(TileColumnsArgs, factors)]);
        vmovups(factors_, ptr[lanes_at]);
        for (const Vec& poison : poison_) zero(poison);
        emit_squares([&](int elements) { emit_square(elements); });
        for (size_t i = 1; i < poison_.size(); ++i) vaddps(poison_[0], poison_[0], poison_[i]);
        mov(lanes_at, ptr[args() + offsetof(TileColumnsArgs, poison)]);
        vmovups(ptr[lanes_at], poison_[0]);
        end();
    }

private:
    void emit_square(int elements) {
        for (int i = 0; i < lanes(); ++i) {
            const Vec& x = x_[size_t(i)];
            if (i >= elements) {
                zero(x);
                continue;
            }
            vmulps(x, factors_, ptr[columns_]);
            vfmadd231ps(poison_[size_t(i) % poison_.size()], x, splat(0.f));
            add(columns_, stride_);
        }
        transpose(x_);
        for (int r = 0; r < lanes(); ++r) store_number(type_, row_at(r), x_[size_t(r)], elements);
    }

    const Vec factors_ = vec("factors");
    const std::vector<Vec> poison_ = vecs("poison", 4);
};

}  // namespace

Status generate_tile_rows(const Target& target, quire_type type, int dim, std::vector<uint8_t>* code) {
    return TileRows(target, type, dim).finish(code);
}
Status generate_tile_columns(const Target& target, quire_type type, int dim, std::vector<uint8_t>* code) {
    return TileColumns(target, type, dim).finish(code);
}

}  // namespace quire::jit
