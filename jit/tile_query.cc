#include "jit/tile_query.h"

#include "jit/tile_query_emitter.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// for each two d: query[d / 2] = pairs of bfloat16 numbers of columns d and d + 1
class TileQueryBfloats : public TileQuery {
public:
    explicit TileQueryBfloats(const RowKey& key) : TileQuery(key) {
        begin();
        emit_pointers();
        if (key.dim > 1)
            repeat(key.dim / 2, [&] {
                emit_pair(2);
                add(columns_, 2 * vec_bytes());
            });
        if (key.dim % 2 != 0) emit_pair(1);
        end();
    }

private:
    void emit_pair(int numbers) {
        Temp low(*this, "low"), high(*this, "high");
        vmovups(low, column(0));
        numbers == 2 ? vmovups(high, column(1)) : zero(high);
        pair_bfloats(low, low, high);
        emit_store(low);
    }
};

// top = largest magnitude of each lane;  factors = top / 32767, NaN where top is not finite
// for each four d: query[..] = words round(columns[d ..] * 32767 / top), in the order of the keys' words
class TileQueryWords : public TileQuery {
public:
    explicit TileQueryWords(const RowKey& key) : TileQuery(key) {
        begin();
        emit_pointers();
        emit_row_factors(inverse_, kLargestWord);
        const int second = swaps_middle(key.format) ? 2 : 1;  // of the first pair
        repeat(key.dim / 4, [&] {
            emit_pair(0, second);
            emit_pair(3 - second, 3);
            add(columns_, 4 * vec_bytes());
        });
        end();
    }

private:
    void emit_pair(int first, int second) {
        Temp low(*this, "low"), high(*this, "high");
        vmulps(low, inverse_, column(first));
        vmulps(high, inverse_, column(second));
        vcvtps2dq(low, low);
        vcvtps2dq(high, high);
        join_words(low, low, high);
        emit_store(low);
    }

    const Vec inverse_ = vec("inverse");
};

}  // namespace

Status generate_tile_query(const RowKey& keys, std::vector<uint8_t>* code) {
    if (keys.query_bytes() > 0) return generate_tile_query_bytes(keys, code);
    return keys.words() ? TileQueryWords(keys).finish(code) : TileQueryBfloats(keys).finish(code);
}

}  // namespace quire::jit
