// What an attention mask says before any score is computed: where each row's visible keys begin and end, and
// which blocks of keys need its values at all. Masks that runtimes build for every call (causal, padding,
// windows, sequences that share a cache) are mostly runs of 0 and of -Inf; then whole blocks are skipped, or
// are computed as if there were no mask.
#pragma once
#include <cstdint>
#include <vector>

#include "src/tensors.h"

namespace quire {

struct AttentionProblem;

// Where one query's visible keys are.
struct KeyRange {
    int64_t begin, end;
};

class MaskMap {
public:
    enum Block : uint8_t {
        hidden,  // every key
        plain,   // within the row's range every key is visible, and nothing is added
        mixed    // ask the mask
    };
    static constexpr int64_t kKeys = 128;  // of a block

    // Keeps its memory from call to call. Until a row is scanned the map says nothing of it (all keys,
    // mixed).
    void build(const AttentionProblem& problem);
    void clear() { rows_ = 0; }
    bool says_anything() const { return rows_ > 0; }

    // Scanning: independent items.
    int64_t items() const { return (rows_ + kItemRows - 1) / kItemRows; }
    void run_item(int64_t item);
    bool is_small() const { return rows_ * columns_ <= kSmall; }

    KeyRange range(int64_t row) const { return ranges_[size_t(row)]; }
    Block block(int64_t row, int64_t index) const { return blocks_[size_t(row * blocks_per_row_ + index)]; }
    // Row of the map of query i of sequence b, which is query `token` of all.
    int64_t row(int64_t b, int64_t i, int64_t token) const {
        return packed_ ? token : b * batch_rows_ + i * query_rows_;
    }

private:
    static constexpr int64_t kItemRows = 16;
    static constexpr int64_t kSmall = 1 << 15;  // elements that one thread scans while a call is prepared

    struct Source {  // a row of the mask
        const char* base;
        int64_t keys;
    };
    Source source(int64_t row) const;

    const AttentionProblem* problem_ = nullptr;
    int64_t rows_ = 0, columns_ = 0, blocks_per_row_ = 0;
    bool packed_ = false;
    int64_t batch_rows_ = 0, query_rows_ = 0;  // rows of the map from sequence to sequence, query to query
    std::vector<KeyRange> ranges_;
    std::vector<Block> blocks_;
};

}  // namespace quire
