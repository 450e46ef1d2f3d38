#include "tests/fuzz/batch.h"

#include "src/format.h"

namespace quire::fuzz {

int64_t draw_size(Source& source, bool small) {
    if (small) return source.pick<int64_t>({1, 2, 4, 7, 8, 12, 16});
    // Few sizes, so that most kernels are there already; now and then one that may need new ones.
    if (source.chance(8)) return source.between(1, 640);
    return source.pick<int64_t>({8, 16, 24, 32, 40, 64, 100});
}

Heads draw_heads(Source& source) {
    Heads heads{};
    heads.small = source.chance(96);
    heads.D = draw_size(source, heads.small);
    heads.Hk = source.between(1, heads.small ? 2 : 3);
    heads.H = heads.Hk * source.pick<int64_t>({1, 2, 3, 4});
    if (heads.D > 128) heads.H = heads.Hk = 1;
    return heads;
}

quire_format draw_format(Source& source, int64_t dim, Blocks blocks) {
    if (blocks != Blocks::none && dim % 8 == 0 && source.chance(64))
        return {source.pick<quire_type>({QUIRE_INT8_B16, QUIRE_INT4_B16}),
                int32_t(source.pick<int64_t>({8, dim % 16 == 0 ? 16 : 8, dim % 32 == 0 ? 32 : 8, dim})),
                QUIRE_F16};
    if (blocks == Blocks::any && dim % kBlockValues == 0 && source.chance(96))
        return {source.pick<quire_type>(
                    {QUIRE_Q8_0, QUIRE_Q4_0, QUIRE_Q4_1, QUIRE_Q5_0, QUIRE_Q5_1, QUIRE_IQ4_NL}),
                0, QUIRE_NONE};
    const auto type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_INT8, QUIRE_INT4});
    if (type != QUIRE_INT8 && type != QUIRE_INT4) return {type, 0, QUIRE_NONE};
    if (type == QUIRE_INT4 && dim % 2 != 0) return {QUIRE_F16, 0, QUIRE_NONE};
    int64_t group = source.pick<int64_t>({8, 8, 16, 32, 1, 2, 4, 5, 64, 128});
    while (dim % group != 0) --group;
    return {type, int32_t(group), source.pick<quire_type>({QUIRE_F32, QUIRE_F16})};
}

Batch draw_batch(Source& source, bool small, bool same_queries, bool same_keys, bool cached) {
    Batch batch;
    const int64_t B = source.between(same_queries || same_keys ? 1 : 0, 3);
    const bool many = small && source.chance(48), far = small && source.chance(16);
    batch.seqstarts = batch.kvstarts = {0};
    for (int64_t b = 0; b < B; ++b) {
        int64_t S = source.between(0, many ? 40 : 5);
        if (same_queries && b > 0) S = batch.queries[0];
        int64_t rest = source.between(0, far ? 1300 : many ? 90 : 20);
        if (same_keys && b > 0) rest = batch.keys[0] - (cached ? batch.queries[0] : 0);
        batch.queries.push_back(S);
        batch.keys.push_back(rest + (cached ? S : 0));
        batch.seqstarts.push_back(batch.seqstarts.back() + S);
        batch.kvstarts.push_back(batch.kvstarts.back() + batch.keys.back());
    }
    return batch;
}

void place_rows(Source& source, Placement placement, Batch* batch, int64_t grid) {
    const auto on_grid = [&](int64_t row) { return (row + grid - 1) / grid * grid; };
    if (placement == Placement::dense) {
        batch->slots = on_grid(batch->kvstarts.back() + source.between(0, 2));
        return;
    }
    const bool pages = placement == Placement::pages;
    batch->page_size = pages ? on_grid(source.pick<int64_t>({1, 3, 4, 16, 128})) : 0;
    int64_t row = 0;
    std::vector<std::vector<int64_t>> starts;
    for (int64_t T : batch->keys) {
        starts.emplace_back();
        const int64_t size = pages ? batch->page_size : std::max<int64_t>(T, 1);
        for (int64_t t = 0; t < std::max<int64_t>(T, pages ? 0 : 1); t += size) {
            row = on_grid(row + source.between(0, 2));
            starts.back().push_back(row);
            row += std::min(size, T - t);
        }
        batch->max_pages = std::max(batch->max_pages, int64_t(starts.back().size()));
    }
    batch->slots = on_grid(row + (source.chance(128) ? 0 : 1));
    for (std::vector<int64_t>& one : starts) {
        if (pages) one.resize(size_t(batch->max_pages), INT64_MIN);  // never read
        batch->cachestarts.insert(batch->cachestarts.end(), one.begin(), one.end());
    }
}

}  // namespace quire::fuzz
