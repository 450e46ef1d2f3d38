/* Two sequences grow in one paged int8 cache, then one token of each attends to it. The result is compared
 * with a plain loop in double over the dequantised cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "quire/quire.h"

/* Sequences, query heads, key/value heads, head size. */
enum { B = 2, H = 8, HK = 2, D = 64 };
/* Values a scale, tokens a page, most pages of a sequence, most new tokens a call. */
enum { G = 32, P = 16, MAX_PAGES = 20, CHUNK = 37 };
enum { PAGES = B * MAX_PAGES, SLOTS = PAGES * P };

static const quire_format format = {QUIRE_INT8, G, QUIRE_F32};
static const int64_t length[B] = {300, 211};

/* The cache belongs to the caller: int8 codes, one scale for every G of them, and the page table. */
static int8_t key[SLOTS][HK][D], value[SLOTS][HK][D];
static float key_scale[SLOTS][HK][D / G], value_scale[SLOTS][HK][D / G];
static int64_t page_table[B][MAX_PAGES]; /* the row at which each page of a sequence begins */

/* How quire sees it. */
static quire_tensor key_view, value_view, key_scale_view, value_scale_view, page_table_view;

static void check(quire_status status) {
    if (status == QUIRE_OK) return;
    fprintf(stderr, "quire: %s\n", quire_last_error());
    exit(2);
}

static quire_tensor view3(void* data, quire_type type, int64_t d0, int64_t d1, int64_t d2) {
    const int64_t shape[] = {d0, d1, d2};
    return quire_tensor_of(data, type, 3, shape);
}

static quire_tensor integers(int64_t* data, int64_t count) {
    return quire_tensor_of(data, QUIRE_INT64, 1, &count);
}

static void fill_random(float* x, int64_t count) {
    static uint32_t seed = 1;
    for (int64_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static void make_cache(void) {
    const int64_t table_shape[] = {B, MAX_PAGES};
    key_view = view3(key, QUIRE_INT8, SLOTS, HK, D);
    value_view = view3(value, QUIRE_INT8, SLOTS, HK, D);
    key_scale_view = view3(key_scale, QUIRE_F32, SLOTS, HK, D / G);
    value_scale_view = view3(value_scale, QUIRE_F32, SLOTS, HK, D / G);
    page_table_view = quire_tensor_of(page_table, QUIRE_INT64, 2, table_shape);
    /* Pages in a scattered order, as after some time of use; 7 and PAGES have no divisor in common. */
    for (int i = 0; i < PAGES; ++i) page_table[i % B][i / B] = i * 7 % PAGES * P;
}

/* Appends up to CHUNK new tokens of every sequence a call, until all have their length. */
static void append_all(void) {
    static float new_key[B * CHUNK][HK][D], new_value[B * CHUNK][HK][D];
    int64_t start_pos[B] = {0}, seqstarts[B + 1] = {0};
    quire_tensor starts = integers(seqstarts, B + 1), positions = integers(start_pos, B);
    quire_append_desc desc;
    quire_plan* plan;

    quire_append_desc_init(&desc);
    desc.num_kv_heads = HK;
    desc.head_dim = D;
    desc.type = QUIRE_F32;
    desc.key_format = desc.value_format = format;
    desc.page_size = P;
    check(quire_append_plan(NULL, &desc, &plan));

    for (;;) {
        for (int b = 0; b < B; ++b) {
            const int64_t left = length[b] - start_pos[b];
            seqstarts[b + 1] = seqstarts[b] + (left < CHUNK ? left : CHUNK);
        }
        const int64_t n = seqstarts[B];
        if (n == 0) break;
        fill_random(&new_key[0][0][0], n * HK * D);
        fill_random(&new_value[0][0][0], n * HK * D);

        quire_tensor k = view3(new_key, QUIRE_F32, n, HK, D), v = view3(new_value, QUIRE_F32, n, HK, D);
        quire_append_args args = {.struct_size = sizeof args, .new_key = &k, .new_value = &v};
        args.key = &key_view, args.key_scale = &key_scale_view;
        args.value = &value_view, args.value_scale = &value_scale_view;
        args.seqstarts = &starts, args.start_pos = &positions, args.cachestarts = &page_table_view;
        check(quire_append(plan, &args));
        for (int b = 0; b < B; ++b) start_pos[b] += seqstarts[b + 1] - seqstarts[b];
    }
    quire_plan_destroy(plan);
}

/* output[b][h] = softmax(query[b][h] . keys of b / sqrt(D)) . values of b */
static void decode(float query[B][H][D], float output[B][H][D]) {
    int64_t seqstarts[B + 1] = {0, 1, 2}, kvstarts[B + 1] = {0, length[0], length[0] + length[1]};
    quire_tensor q = view3(query, QUIRE_F32, B, H, D), o = view3(output, QUIRE_F32, B, H, D);
    quire_tensor starts = integers(seqstarts, B + 1), kv_starts = integers(kvstarts, B + 1);
    quire_attention_desc desc;
    quire_plan* plan;

    quire_attention_desc_init(&desc);
    desc.num_heads = H;
    desc.num_kv_heads = HK;
    desc.head_dim = D;
    desc.type = QUIRE_F32;
    desc.key_format = desc.value_format = format;
    desc.is_causal = 1;
    desc.page_size = P;
    check(quire_attention_plan(NULL, &desc, &plan));

    quire_attention_args args = {.struct_size = sizeof args, .query = &q, .output = &o};
    args.key = &key_view, args.key_scale = &key_scale_view;
    args.value = &value_view, args.value_scale = &value_scale_view;
    args.seqstarts = &starts, args.kvstarts = &kv_starts, args.cachestarts = &page_table_view;
    check(quire_attention(plan, &args));
    quire_plan_destroy(plan);
}

/* One query head in double, straight from the codes of the cache. */
static void reference(int b, int h, const float* query, double* output) {
    const int kv_head = h / (H / HK);
    double max = -INFINITY, sum = 0, p[MAX_PAGES * P];
    for (int64_t t = 0; t < length[b]; ++t) {
        const int64_t row = page_table[b][t / P] + t % P;
        double dot = 0;
        for (int d = 0; d < D; ++d)
            dot += query[d] * (double)key_scale[row][kv_head][d / G] * key[row][kv_head][d];
        p[t] = dot / sqrt(D);
        max = fmax(max, p[t]);
    }
    for (int64_t t = 0; t < length[b]; ++t) sum += p[t] = exp(p[t] - max);
    for (int d = 0; d < D; ++d) {
        output[d] = 0;
        for (int64_t t = 0; t < length[b]; ++t) {
            const int64_t row = page_table[b][t / P] + t % P;
            output[d] += p[t] / sum * value_scale[row][kv_head][d / G] * value[row][kv_head][d];
        }
    }
}

int main(void) {
    static float query[B][H][D], output[B][H][D];
    double expected[D], largest = 0;
    int wrong = 0;

    printf("quire %s, target %s\n", quire_version(), quire_target_name(NULL));
    make_cache();
    append_all();
    fill_random(&query[0][0][0], B * H * D);
    decode(query, output);

    for (int b = 0; b < B; ++b) {
        const float* first = output[b][0];
        printf("sequence %d, %d keys: %9.6f %9.6f %9.6f ...\n", b, (int)length[b], first[0], first[1],
               first[2]);
        for (int h = 0; h < H; ++h) {
            reference(b, h, query[b][h], expected);
            for (int d = 0; d < D; ++d) {
                const double difference = fabs(output[b][h][d] - expected[d]);
                largest = fmax(largest, difference);
                wrong += !(difference <= 1e-6); /* counts NaN, too */
            }
        }
    }
    printf("largest difference from the loop in double: %.2g (%d values too far off)\n", largest, wrong);
    return wrong != 0;
}
