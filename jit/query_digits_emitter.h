// What the generators have in common that make tiles of AMX of a query row: its numbers' digits.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/kernel_key.h"
#include "jit/query_emitter.h"

namespace quire::jit {

// Form: KeyAmx, or TokenKeyAmx.
template <typename Form>
class QueryDigits : public QueryEmitter {
protected:
    explicit QueryDigits(const RowKey& key) : QueryEmitter(*key.target), form_(key) {}

    // top = largest magnitude of the row; factors[0] = top / largest_digits, NaN where top is not finite
    void begin_digits() {
        begin_row(form_.plane_bytes() / lanes());
        take_inverse(float(largest_digits(form_.digits)));
    }

    // For each 16 elements of a part: n = round(x / factor), its digits to starts, [digit][part].
    void emit_digits() {
        stage("digits");
        times(form_.padded_part() / lanes(), "left", [&] {
            const std::vector<Vec> x = vecs("x", form_.parts);
            for (int part = 0; part < form_.parts; ++part) {
                const Vec& v = x[size_t(part)];
                form_.parts == 1 ? vmovups(v, ptr[row_]) : load_every_second(v, row_ + part * 4);
                vmulps(v, v, top_);
                vcvtps2dq(v, v);
                for (int digit = form_.digits - 1; digit >= 0; --digit) {
                    vpmovdb(ptr[starts_ + digit * form_.plane_bytes() + part * form_.padded_part()],
                            Xbyak::Zmm(v.getIdx()));
                    if (digit == 0) break;
                    vpaddd(v, v, splat_bits(0x80));
                    vpsrad(v, v, 8);
                }
            }
            free(x);
            add(row_, lanes() * 4 * form_.parts);
            add(starts_, lanes());
        });
        mov(starts_, ptr[args() + offsetof(QueryArgs, starts)]);
    }

    const Form form_;
};

}  // namespace quire::jit
