/* quire: attention on CPUs over paged, quantised key/value caches.
 *
 * This header is the manual. Letters used for shapes, here and in every message:
 *   B  sequences in a batch          S  query tokens of a sequence
 *   H  query heads                   T  key/value tokens of a sequence
 *   Hk key/value heads (H % Hk == 0) G  quant_group: values that share a scale
 *   D  head size of query and key    P  tokens in a page
 *   Dv head size of value            n  query tokens of all sequences, seqstarts[B]
 *
 * Rules that hold for every function:
 *   - The caller owns every buffer; quire keeps no pointer to one after a call returns, except a prepared
 *     run (quire_prepare), until quire_run_release.
 *   - A function returns QUIRE_OK or a status; quire_last_error() then says which argument, its value and
 *     the rule it broke. A call that fails has written to no buffer of the caller.
 *   - A struct begins with `struct_size`; set it to sizeof(the struct), zero the rest (or use the *_init
 *     function). Fields are only ever appended: a shorter struct of an older program means defaults, and in a
 *     longer one of a newer program the bytes that this version does not know must be 0.
 *   - Nothing is printed but what a context logs, nothing is thrown, MXCSR is left as it was. Attention's
 *     results below 2^-126 may be 0.
 *   - Tensors may be unaligned. Input and output of one call may not overlap, except where said.
 *   - Contexts and plans may be used from many threads at once. Two runs at a time must not write to the
 *     same buffers. A plan must live as long as the runs prepared with it.
 *   - After fork, the child may go on using contexts and plans, provided that no other thread was in a call of
 *     quire. Fork ends oneTBB's threads, and both processes make new ones; where another thread of the program
 *     holds on to oneTBB they stay, and the child runs inline. Once a process has run in quire's own oneTBB
 *     threads, the shared library stays loaded after dlclose.
 *   - Environment: QUIRE_TARGET caps the instruction set (a name of quire_target_name, unknown: an error),
 *     QUIRE_NUM_THREADS sets the threads of contexts that do not say. QUIRE_VERBOSE (0, 1, 2), QUIRE_PERF (map,
 *     jitdump, vtune) and QUIRE_JIT_DUMP (a directory) show what a context does, see docs/profiling.md. All are read
 *     when a context is made; a value that is none of these is an error then.
 */
#ifndef QUIRE_QUIRE_H_
#define QUIRE_QUIRE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define QUIRE_API
#else
#define QUIRE_API __attribute__((visibility("default")))
#endif

/* An enumeration of any int: a value that it does not list is refused, and is no undefined behaviour in C++. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define QUIRE_ENUM(name) enum name : int
#else
#define QUIRE_ENUM(name) enum name
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_VERSION_MAJOR 0
#define QUIRE_VERSION_MINOR 1
#define QUIRE_VERSION_PATCH 0

/* "0.1.0"; static, never NULL. */
QUIRE_API const char *quire_version(void);

/* ---- status -------------------------------------------------------------------------------------------- */

typedef QUIRE_ENUM(quire_status) {
    QUIRE_OK = 0,
    QUIRE_INVALID_ARGUMENT = 1, /* the caller broke a rule of this header                              */
    QUIRE_UNSUPPORTED = 2,      /* allowed by the rules, but not available here (the message says what) */
    QUIRE_OUT_OF_MEMORY = 3,
    QUIRE_INTERNAL = 4 /* a defect of quire; nothing was written                              */
} quire_status;

/* Message of the last failed call of this thread ("kvstarts[2] is 5: must be >= kvstarts[1], which is 7").
 * Valid until the next call of this thread; "" where there was none. */
QUIRE_API const char *quire_last_error(void);

/* ---- tensors ------------------------------------------------------------------------------------------- */

typedef QUIRE_ENUM(quire_type) {
    QUIRE_NONE = 0,
    QUIRE_F32 = 1,
    QUIRE_F16 = 2,
    QUIRE_BF16 = 3,
    QUIRE_INT8 = 4,
    QUIRE_INT4 = 5, /* two a byte: element 2i in the low nibble, 2i+1 in the high, two's complement, -7..7 */
    QUIRE_INT64 = 6,
    QUIRE_INT32 = 7,
    QUIRE_BOOL = 8, /* one byte, 0 is false */
    /* ggml's blocks of 32 values, with their scales in them: docs/formats.md. Of keys and values only */
    QUIRE_Q8_0 = 9,   /* 34 bytes */
    QUIRE_Q4_0 = 10,  /* 18 */
    QUIRE_Q4_1 = 11,  /* 20 */
    QUIRE_Q5_0 = 12,  /* 22 */
    QUIRE_Q5_1 = 13,  /* 24 */
    QUIRE_IQ4_NL = 14, /* 18 */
    /* quire's own blocks of 16 tokens of a kv head, codes and scales, in the order in which decode reads them:
     * docs/formats.md. Of keys and values only; an element of such a tensor is a byte */
    QUIRE_INT8_B16 = 15,
    QUIRE_INT4_B16 = 16
} quire_type;

#define QUIRE_MAX_RANK 8

/* A view: `data` points at element (0, ..., 0). Shape and strides count elements, also for QUIRE_INT4 (whose
 * last dimension must have stride 1 and an even length) and for the types of blocks (the same, a multiple of 32;
 * the other strides are multiples of 32 too: 32 elements are one block, so that a stride of s bytes of Q8_0 is
 * s / 34 * 32). A stride may be any value that keeps elements
 * apart which are written; of a dimension of length 1 it is ignored. Passed by pointer; NULL where absent. */
typedef struct quire_tensor {
    void *data;
    quire_type type;
    int32_t rank;
    int64_t shape[QUIRE_MAX_RANK];
    int64_t strides[QUIRE_MAX_RANK];
} quire_tensor;

/* A dense row-major view of `data` with that shape. rank <= QUIRE_MAX_RANK. */
QUIRE_API quire_tensor quire_tensor_of(void *data, quire_type type, int32_t rank, const int64_t *shape);

/* Bytes of so many elements that follow each other (Q8_0: 32 are 34 bytes). 0 where they are no whole bytes or
 * blocks, or the type is none of quire_type. */
QUIRE_API int64_t quire_bytes_of(quire_type type, int64_t elements);

/* ---- context ------------------------------------------------------------------------------------------- */

typedef struct quire_context quire_context;

/* What a context logs: one line without newline. May come from any thread that calls quire. */
typedef void (*quire_log_fn)(void *user, const char *line);

typedef struct quire_context_options {
    size_t struct_size;
    const char *target;        /* cap, a name of quire_target_name; NULL: QUIRE_TARGET, else what is quickest here */
    int32_t num_threads;       /* of quire's own oneTBB arena; 0: QUIRE_NUM_THREADS, else all processors that
                                  this process may use; 1: inline, in the caller's thread.
                                  oneTBB never uses more threads than processors */
    int64_t code_memory_limit; /* bytes of generated code kept by the context; 0: 64 MiB */
    quire_log_fn log;          /* NULL: stderr */
    void *log_user;
    int32_t quiet;             /* 1: no lines of calls and plans, whatever QUIRE_VERBOSE says */
} quire_context_options;

/* options NULL: the defaults. The context outlives its plans: destroying it while plans exist only drops the
 * caller's hold. Wherever a context is taken, NULL is a default one made on first use. */
QUIRE_API quire_status quire_context_create(const quire_context_options *options, quire_context **context);
QUIRE_API void quire_context_destroy(quire_context *context);

/* The instruction-set tier that plans of this context use: "avx512_vnni_bf16_amx", "avx512_vnni_bf16",
 * "avx512_vnni_vbmi", "avx512_vnni", "avx512", "avx2_vnni", "avx2" or "portable". NULL, with a message, where
 * QUIRE_TARGET is not such a name. Linux has to be asked for the state of AMX (arch_prctl), once for the process: the
 * first context does so that no lower target is named for. */
QUIRE_API const char *quire_target_name(quire_context *context);
QUIRE_API int32_t quire_num_threads(quire_context *context);

/* ---- plans and runs ------------------------------------------------------------------------------------ */

/* What is decided once per descriptor: kernels, tile sizes, target. Immutable. */
typedef struct quire_plan quire_plan;
QUIRE_API void quire_plan_destroy(quire_plan *plan);

/* Text, one "key: value" a line: target, kernels, tile sizes, and why each faster candidate declined. Valid
 * while the plan lives. */
QUIRE_API const char *quire_plan_explain(const quire_plan *plan);

/* The same as JSON: {"op", "parts": {NAME: {"target", "declined": [{"target", "reason"}], "kernels": [...]}},
 * "notes": {KEY: TEXT}}, NAME one of attention, append, read, rotate. Valid while the plan lives. */
QUIRE_API const char *quire_plan_explain_json(const quire_plan *plan);

/* One checked call, prepared to be run by threads of the caller's (see "slices"). */
typedef struct quire_run quire_run;

/* Called by every slice at the same points: returns when all `count` slices have called it. */
typedef void (*quire_barrier_fn)(void *user);

/* Slices: quire_prepare_* checks a call and returns a run; then `count` threads call quire_run_slice, each
 * with its own index 0..count-1 and the same count; when all have returned, quire_run_release. The output has
 * the same bits for every count. With count 1 barrier may be NULL. Errors come from quire_prepare_*; a slice
 * fails only when `index`, `count` or `barrier` is wrong, before it does anything. */
QUIRE_API quire_status quire_run_slice(quire_run *run, int32_t index, int32_t count, quire_barrier_fn barrier,
                                       void *barrier_user);
QUIRE_API void quire_run_release(quire_run *run);

/* What a machine can do, with the threads that will run; 0: not known. */
typedef struct quire_limits {
    size_t struct_size;
    double bytes_per_second; /* reading memory */
    double flops_per_second; /* float32, an FMA counts as two */
} quire_limits;

typedef QUIRE_ENUM(quire_bound) {
    QUIRE_BOUND_UNKNOWN = 0, /* a limit that is needed is not known */
    QUIRE_BOUND_MEMORY = 1,
    QUIRE_BOUND_COMPUTE = 2
} quire_bound;

/* The least that a prepared call has to do. The time is the longer of bytes / bytes_per_second and flops /
 * flops_per_second: the call takes longer, or, where its tensors are in a processor's cache, less. */
typedef struct quire_prediction {
    size_t struct_size;
    double bytes; /* of queries, keys, values, scales and outputs (no masks, no indices), each once */
    double flops; /* of products over the visible keys, and of dense layers; a multiplication and an addition: two */
    quire_bound bound;
    double seconds; /* 0 where the bound is unknown */
} quire_prediction;

/* Nothing is run: quire_prepare_*, this, quire_run_release. limits may be NULL. */
QUIRE_API quire_status quire_run_predict(const quire_run *run, const quire_limits *limits,
                                         quire_prediction *prediction);

/* Precision of the arithmetic; the reference is float64 attention over the dequantised cache. A lower one is taken
 * where it is faster, else a call runs at the next higher: quire_plan_explain says which ("precision").
 *   highest  float32, or integers with as many bits (codes of 8 to 4 bits on AVX-512 with VNNI: 24 of the query row's
 *            largest number, and in decode, with VBMI too, of the largest weight of 128 keys and a group):
 *            errors at most twice those of a plain float32 attention
 *   high     over codes of 8, 5 or 4 bits: query and weights are 16-bit words (15 significant bits of the row's, and
 *            of 128 keys' largest), sums are of integers (by AMX with many query rows codes times scales have 16
 *            bits, too, of their row's largest). Adds an RMS error below
 *            1e-4 of the output's RMS on normal data (up to 0.96e-4 seen), below 2.5e-4 where one of 64 channels of
 *            the query or of the values is ten times larger (up to 2.4e-4 seen)
 *   medium   over codes of keys the query may be rounded to 8 bits, with a scale for every eight elements (in prefill over
 *            8-bit codes a power of two beside that of the eight next to them), in prefill where the processor has VNNI or
 *            codes have 4 bits;
 *            decode without VNNI to 7 bits with a scale for every two elements (4-bit codes: to 8, for four or two);
 *            weights and values as `high` (over int4 values, in decode q4_0 too, with AVX2 alone: weights are rounded to 8 bits,
 *            relative to the largest of 16 keys'; decode of q8_0, and of int8 in groups of a multiple of 32, with two query
 *            rows a kv head or more: relative to the largest sum of two of four keys'; decode multiplies 128 keys with a
 *            negative scale of such values but q4_0's among them twice; with AVX-512, VNNI and VBMI decode of int8, q8_0
 *            and int4 in groups of a multiple of 32, with three query rows a kv head or more, of int4 four: relative to
 *            the largest of 16 keys'; int8 and int4 in groups of less than 16, with four query rows a kv head or more (int4
 *            with AVX-512 five, int8_b16 without it two): weights and values have 12 significant bits, of 128 keys'
 *            largest; decode of many query rows by tiles of AMX, of int8 and int4 in large groups, as `high`). With more
 *            than 16 query rows a kv head, over keys in rows with more than 12, and over codes of values in one group or in
 *            groups of a multiple of 16, with AVX-512 and VNNI, weights are
 *            rounded to 8 bits, relative to the largest of 16 keys'. In prefill (more than 12 query rows a kv head, with
 *            AVX-512 more than 16, with AMX and no such codes more than 12; a few that fill no vector may be decoded),
 *            on the targets with bfloat16, all else of
 *            query, keys, values and weights (with AMX all of them) is rounded to bfloat16, whatever the cache's
 *            format, weights before they become 8 bits too: by up to 0.5 %, and so is their sum, of which lse is.
 *            Adds an RMS error below 0.7 % (1.6 % over 4-bit codes) on normal data (0.3 to 0.67 % seen; bfloat16 over a
 *            bfloat16 cache 0.23 %), below 1.5 % where one of 64 channels of the query or of the values is ten times
 *            larger (0.3 to 1.4 % seen; bfloat16 0.3 to 0.8 %); of all outputs of many query rows: with such a
 *            channel a few keys can have all the weight, and three query rows alone had up to 1.7 %
 * (tests/numerics_precision.cc, which prints what it sees) */
typedef QUIRE_ENUM(quire_precision) {
    QUIRE_PRECISION_HIGHEST = 0,
    QUIRE_PRECISION_HIGH = 1,
    QUIRE_PRECISION_MEDIUM = 2
} quire_precision;

/* ---- memory for a cache -------------------------------------------------------------------------------- */

/* Memory for a cache, or anything large: zeros, from a multiple of 2 MiB on, backed by 2 MiB pages where the system has
 * them (Linux: transparent huge pages, asked for with madvise), which spares decode a large part of its time in page
 * tables. Where it has none, or refuses, the memory is of small pages: no error. Physical memory is taken when it is
 * first touched, 2 MiB at a time.
 * bytes: at least 1; rounded up to whole 2 MiB. OUT_OF_MEMORY where there is not so much address space or memory. *memory
 * is written on success only.
 * The memory is the caller's, in no connection with a context, and is inherited by fork as any other. */
QUIRE_API quire_status quire_cache_alloc(size_t bytes, void **memory);
/* What quire_cache_alloc gave, with the same bytes; NULL: nothing happens. Another address or other bytes: an error
 * where that can be seen (memory is no multiple of 2 MiB, bytes is 0), else as undefined as with free(). */
QUIRE_API quire_status quire_cache_free(void *memory, size_t bytes);

/* ---- quire_attention ----------------------------------------------------------------------------------- */

/* How rows of keys or values are stored: `type` F32, F16, BF16 (quant_group and scale_type are ignored), or INT8,
 * INT4 with quant_group (divides the head size) and scale_type (F32 or F16): the value is code * scale. Or a type of
 * blocks, Q8_0 to IQ4_NL, where 32 divides the head size: there are no tensors of scales then, and quant_group and
 * scale_type are ignored. Keys and values are each of their own format.
 * INT8_B16 and INT4_B16 store what INT8 and INT4 do, in blocks of 16 tokens of a kv head (decode reads them faster):
 * quant_group is a multiple of 8 and divides the head size, scale_type is F16, and scales lie in the blocks, so that
 * there are no tensors of them. `key` is then of bytes, [slots / 16, Hk, quire_block_bytes] or [B, T / 16, Hk,
 * quire_block_bytes], `value` likewise. Slots, positions and lengths count tokens as ever: slot s is token s % 16 of
 * block s / 16; page_size and every row where a sequence or a page begins are multiples of 16. What a block holds for
 * tokens past the end of a sequence does not count. */
typedef struct quire_format {
    quire_type type;
    int32_t quant_group;
    quire_type scale_type;
} quire_format;

/* Bytes of a block of 16 tokens of one kv head, with their scales. 0 where the type is none of INT8_B16 and INT4_B16,
 * or the format and the head size do not go together. */
QUIRE_API int64_t quire_block_bytes(quire_format format, int32_t head_dim);

typedef struct quire_attention_desc {
    size_t struct_size;
    int32_t num_heads;      /* H, >= 1 */
    int32_t num_kv_heads;   /* Hk, divides H; 0: H */
    int32_t head_dim;       /* D, 1..1024 */
    int32_t value_head_dim; /* Dv, 1..1024; 0: D */
    quire_type type;        /* of query and output: F32, F16 or BF16 */
    quire_format key_format;
    quire_format value_format;
    float scale;            /* of the scores; 0: 1 / sqrt(D) */
    int32_t is_causal;      /* 1: a query sees keys up to its own position, see query_positions; 0: all */
    int32_t is_alibi;       /* adds slope_h * (j - position) and hides later keys; slopes by H, see docs/operators.md */
    int32_t has_window;     /* 1: window_left and window_right count; 0: no window */
    int32_t window_left;    /* keys seen before the query's own position, < 0: all */
    int32_t window_right;   /* keys seen after it, < 0: all */
    float logits_soft_cap;  /* c > 0: score = c * tanh(score / c), before mask and ALiBi; 0: none */
    int32_t page_size;      /* P: with it `cachestarts` is a page table [B, MaxP]; 0: offsets [B] */
    quire_precision precision;
    int32_t causal_corner;  /* position of query i where query_positions is not given: 0: T - S + i (the queries are
                               the last positions, bottom-right); 1: i (top-left) */
} quire_attention_desc;

QUIRE_API void quire_attention_desc_init(quire_attention_desc *desc);
QUIRE_API quire_status quire_attention_plan(quire_context *context, const quire_attention_desc *desc,
                                            quire_plan **plan);

/* Arguments of one call. Keys and values are rows of one kv head: `key` [slots, Hk, D], `value` [slots, Hk, Dv]
 * with any strides but 1 in the last dimension; scales [slots, Hk, D / G] likewise. Position t of sequence b
 * is row cachestarts[b] + t, or with pages row cachestarts[b, t / P] + t % P (page beginnings are rows and need
 * not be multiples of P; entries past the last page in use are never read). Pages that hold the rows of all heads,
 * [MaxP, 2, Hk, P, D], are such rows, too: strides D and P * D, page p begins at row p * 2 * Hk * P, and rows between
 * the pages, which are other heads', are neither read nor written. Without cachestarts it is row
 * kvstarts[b] + t: plain dense keys.
 *
 * Batched form: query [B, S, H, D] (then output [B, S, H, Dv], lse [B, S, H], no seqstarts). Keys may be rows as
 * above, or [B, T, Hk, D] (then no kvstarts, no cachestarts). Any strides: [B, H, S, D] tensors are such views. */
typedef struct quire_attention_args {
    size_t struct_size;
    const quire_tensor *query;       /* [n, H, D] or [B, S, H, D], desc.type */
    const quire_tensor *key;         /* [slots, Hk, D] or [B, T, Hk, D], key_format.type */
    const quire_tensor *value;       /* [slots, Hk, Dv] or [B, T, Hk, Dv], value_format.type */
    const quire_tensor *key_scale;   /* as key, last dimension D / G; key_format.scale_type; NULL: not quantised */
    const quire_tensor *value_scale; /* as value, last dimension Dv / G */
    const quire_tensor *seqstarts;   /* INT64 [B + 1], from 0 to n, not decreasing; NULL: one sequence */
    const quire_tensor *kvstarts;    /* INT64 [B + 1], from 0, not decreasing; NULL: one sequence, T = slots */
    const quire_tensor *cachestarts; /* INT64 [B] or [B, MaxP], or NULL */
    const quire_tensor *attn_mask;   /* F32, F16 or BF16: added to the scores, -inf hides. BOOL: false hides.
                                        [n, >= kvstarts[B]] or [H or 1, n, >= kvstarts[B]]: rows are tokens of
                                        query, columns kvstarts[b] + t. [B or 1, H or 1, S or 1, T or 1]: by
                                        sequence, lengths 1 broadcast. NULL: none */
    const quire_tensor *sinks;       /* F32 [H]: one more logit in the softmax's sum, without a value; or NULL */
    int64_t decoding_batches;        /* the first so many sequences are not masked by is_causal */
    const quire_tensor *output;      /* as query with Dv, desc.type; written. A query that sees no key gives zeros */
    const quire_tensor *lse;         /* F32 [n, H] or NULL; written: natural log of the softmax's sum (sink
                                        included), -inf where nothing is seen */
    const quire_tensor *query_positions; /* INT64 [B]: position of each sequence's first query; NULL: by
                                        desc.causal_corner. May be negative or past T. For causal, ALiBi, window */
    const quire_tensor *key_begin;   /* INT64 [B]: only keys key_begin[b] <= t < key_end[b] are seen; 0..T; NULL: all */
    const quire_tensor *key_end;     /* INT64 [B] */
    const quire_tensor *tree_mask;   /* INT64 [n, words]: bit j % 64 of word j / 64 of a query token says whether it
                                        sees new key j of its sequence (key T - S + j); older keys are seen. Or NULL */
    float dropout_rate;   /* of probabilities, after the softmax: 0 (none) to less than 1. Those kept are multiplied by
                             1 / (1 - rate); lse does not change. Probability (b, h, i, t) of query i of sequence b is
                             dropped where word t % 4 of Philox4x32-10 with the key dropout_seed and the counter (t / 4, i,
                             b * H + h, dropout_step) is less than rate * 2^32 */
    int64_t dropout_seed; /* any value */
    int64_t dropout_step; /* 0 to 2^32 - 1: another one gives another pattern */
    const quire_tensor *attn_mask_slopes; /* F32 [H]: attn_mask is multiplied by it, head by head; -Inf hides all the
                                             same. Not with a BOOL mask. NULL: 1 */
} quire_attention_args;

QUIRE_API quire_status quire_attention(const quire_plan *plan, const quire_attention_args *args);
QUIRE_API quire_status quire_prepare_attention(const quire_plan *plan, const quire_attention_args *args,
                                               quire_run **run);

/* ---- rotations of queries and keys ----------------------------------------------------------------------- */

/* Two rotations that quire_append does to new keys (and values) in the pass that stores them, and quire_rotate to
 * queries, so that scores stay what they were. Both compute in float32, whatever the type of their input, and what
 * quire_append quantises then is float32. Neither changes the length of a row.
 *
 * Rotary position embedding: element pairs (x, y) of the first R elements become (x c - y s, y c + x s), c and s being
 * entry i of the position's rows of rotary_cos and rotary_sin, F32 [MaxPos, R / 2] with stride 1 in the last
 * dimension. Tables are the caller's, so that scaled frequencies are theirs too; plain ones (entry i of position t is
 * the cosine and sine of t * theta_base ^ (-2 i / R)) come from quire_rotary_tables. */
typedef QUIRE_ENUM(quire_rotary) {
    QUIRE_ROTARY_NONE = 0,
    QUIRE_ROTARY_HALVES = 1,     /* pair i is (i, i + R / 2): transformers' llama, GPT-NeoX */
    QUIRE_ROTARY_INTERLEAVED = 2 /* pair i is (2 i, 2 i + 1): GPT-J, llama in GGUF files */
} quire_rotary;

/* Fills cos and sin, F32 [MaxPos, R / 2] of one shape; computed in double, then rounded. theta_base > 0, finite (10000
 * is usual). */
QUIRE_API quire_status quire_rotary_tables(double theta_base, const quire_tensor *cos, const quire_tensor *sin);

/* Hadamard rotation, after the rotary embedding: each block of 2^k elements (the largest power of two that divides the
 * head size: 128 of 128, 32 of 96, 16 of 80) is multiplied by the orthonormal Walsh-Hadamard matrix of that size,
 * Sylvester's order: element i becomes the sum over j of (-1)^popcount(i & j) x_j / sqrt(2^k). It spreads an element
 * that is larger than the others over its block, so that codes, above all of int4, lose less. The matrix is its own
 * inverse: quire_rotate again rotates back (attention's output, where values were rotated). The head size must be even. */

typedef struct quire_rotate_desc {
    size_t struct_size;
    int32_t num_heads;   /* H, or Hk */
    int32_t head_dim;    /* D, 1..1024 */
    quire_type type;     /* of input and output: F32, F16 or BF16 */
    quire_rotary rotary;
    int32_t rotary_dim;  /* R: the first so many elements of a head, even, 2..D; 0: D */
    int32_t hadamard;    /* 1: Hadamard rotation; 0: none. One of the two rotations at least */
} quire_rotate_desc;

QUIRE_API void quire_rotate_desc_init(quire_rotate_desc *desc);
QUIRE_API quire_status quire_rotate_plan(quire_context *context, const quire_rotate_desc *desc,
                                         quire_plan **plan);

typedef struct quire_rotate_args {
    size_t struct_size;
    const quire_tensor *input;      /* [n, H, D] or [B, S, H, D], stride 1 in the last dimension */
    const quire_tensor *output;     /* as input; may be the same tensor; written */
    const quire_tensor *positions;  /* INT64 [n] or [B, S], 0..MaxPos - 1; with a rotary embedding, else NULL */
    const quire_tensor *rotary_cos; /* F32 [MaxPos, R / 2]; likewise */
    const quire_tensor *rotary_sin;
} quire_rotate_args;

QUIRE_API quire_status quire_rotate(const quire_plan *plan, const quire_rotate_args *args);
QUIRE_API quire_status quire_prepare_rotate(const quire_plan *plan, const quire_rotate_args *args,
                                            quire_run **run);

/* ---- quire_append -------------------------------------------------------------------------------------- */

/* Stores (quantises) new keys and values, in any format but blocks (Q8_0 to IQ4_NL: UNSUPPORTED). Per group:
 * scale = max(max|x| / 127, 1e-5) (int4: / 7), code = clamp(round-half-even(x / scale)), in the
 * arithmetic of the input's type; then the scale is rounded to its type. */
typedef struct quire_append_desc {
    size_t struct_size;
    int32_t num_kv_heads;   /* Hk */
    int32_t head_dim;       /* D */
    int32_t value_head_dim; /* Dv; 0: D */
    quire_type type;        /* of the new keys and values: F32, F16 or BF16 */
    quire_format key_format;
    quire_format value_format;
    int32_t page_size; /* as in quire_attention_desc */
    quire_rotary rotary;     /* of new keys, before they are stored */
    int32_t rotary_dim;      /* R: even, 2..D; 0: D */
    int32_t hadamard_keys;   /* 1: keys are rotated after that; queries must be, too: quire_rotate */
    int32_t hadamard_values; /* 1: values are; attention's output is then rotated, quire_rotate rotates it back */
} quire_append_desc;

QUIRE_API void quire_append_desc_init(quire_append_desc *desc);
QUIRE_API quire_status quire_append_plan(quire_context *context, const quire_append_desc *desc,
                                         quire_plan **plan);

/* Tokens seqstarts[b] .. seqstarts[b + 1] are stored at positions start_pos[b] .. of sequence b, whose rows
 * cachestarts gives as in quire_attention. Batched form: new_key [B, S, Hk, D] (then no seqstarts). Either goes to
 * rows as above, or to key [B, T, Hk, D] (then no cachestarts). */
typedef struct quire_append_args {
    size_t struct_size;
    const quire_tensor *new_key;     /* [n, Hk, D] or [B, S, Hk, D], desc.type */
    const quire_tensor *new_value;   /* [n, Hk, Dv] or [B, S, Hk, Dv], desc.type */
    const quire_tensor *key;         /* [slots, Hk, D] or [B, T, Hk, D]; written in those rows only */
    const quire_tensor *value;       /* [slots, Hk, Dv] or [B, T, Hk, Dv] */
    const quire_tensor *key_scale;   /* as in quire_attention_args */
    const quire_tensor *value_scale;
    const quire_tensor *seqstarts;   /* INT64 [B + 1]; NULL: one sequence */
    const quire_tensor *start_pos;   /* INT64 [B], or rank 0: of all sequences */
    const quire_tensor *cachestarts; /* INT64 [B] or [B, MaxP] */
    const quire_tensor *positions;   /* INT64 [n] or [B, S] by new_key: for the rotary embedding, 0..MaxPos - 1; NULL:
                                        the positions in the cache. NULL without a rotary embedding */
    const quire_tensor *rotary_cos;  /* F32 [MaxPos, R / 2]; NULL without a rotary embedding */
    const quire_tensor *rotary_sin;
} quire_append_args;

QUIRE_API quire_status quire_append(const quire_plan *plan, const quire_append_args *args);
QUIRE_API quire_status quire_prepare_append(const quire_plan *plan, const quire_append_args *args,
                                            quire_run **run);

/* ---- quire_repack -------------------------------------------------------------------------------------- */

/* Moves tokens of one side (keys or values) of a cache between plain rows, in any of PMX's layouts, and blocks of 16
 * tokens: the same codes and scales in other places, so that there and back is the same bytes. Rows row_begin ..
 * row_begin + count - 1 and slots slot_begin .. slot_begin + count - 1 of the blocks are each other's; with pages, a
 * call for each page. Runs in the caller's thread. Only the side that is written changes, and of it only those
 * tokens. */
typedef struct quire_repack_args {
    size_t struct_size;
    const quire_tensor *rows;   /* [slots, Hk, D], INT8 or INT4 */
    const quire_tensor *scales; /* [slots, Hk, D / G], F16 */
    const quire_tensor *blocks; /* [blocks, Hk, quire_block_bytes], INT8_B16 for INT8, INT4_B16 for INT4 */
    int32_t is_value;           /* 0: blocks of keys, 1: of values, whose order differs */
    int32_t to_rows;            /* 0: blocks are written, 1: rows and scales */
    int64_t row_begin;
    int64_t slot_begin;         /* any, also within a block */
    int64_t count;              /* tokens, >= 0 */
} quire_repack_args;
QUIRE_API quire_status quire_repack(const quire_repack_args *args);

/* ---- quire_merge_states -------------------------------------------------------------------------------- */

/* Attention over two disjoint parts of the keys -> attention over both. output_* [n, H, Dv] F32, F16 or BF16
 * (all of one type), lse_* F32 [n, H] (natural log). `output` and `lse` may be output_a and lse_a. A part with
 * lse -inf counts for nothing; where both are, zeros and -inf. lse may be NULL. */
QUIRE_API quire_status quire_merge_states(quire_context *context, const quire_tensor *output_a,
                                          const quire_tensor *lse_a, const quire_tensor *output_b,
                                          const quire_tensor *lse_b, const quire_tensor *output,
                                          const quire_tensor *lse);

/* ---- OpenPPL PMX, dynamic_batching.MultiHeadCacheAttention ------------------------------------------------ */

/* The PMX operators, over ragged batches (dynamic_batching) and over sequences of one length, with the attributes
 * and inputs of their documents by their names, and quire's extensions after them. What holds for all of them, also
 * where the documents are silent or contradict themselves:
 *   - Scores are q . k / sqrt(head_dim), then ALiBi and attn_mask are added. Query head h uses key/value head
 *     h / (H / Hk). H in the documents' shapes of cache and scale is Hk.
 *   - is_causal: query i of S sees key j of T where j <= T - S + i: the queries are the last positions, also where
 *     S and T differ (with more queries than keys the first ones see nothing). It has no effect on the first
 *     decoding_batches sequences, however many query tokens they have.
 *   - is_alibi adds slope_h * (j - (T - S + i)), in float32, and hides later keys by itself: also without is_causal
 *     and in decoding sequences. MultiHeadAttention applies it as the others do.
 *   - New tokens are stored at positions start_pos .. first, quantised as by quire_append, and are then attended to
 *     as the cache has them. Types T1, T2 and T3 may be mixed. int4 is packed as QUIRE_INT4 says.
 *   - A query that sees no key, by whatever mask, gives zeros and lse -inf. Sequences without new tokens are fine.
 *   - Page beginnings are rows of the cache and need not be multiples of page_size; entries past the last page in
 *     use are not read. cachestarts need not be in order, and rows of the past may be shared.
 *   - num_layer is checked against the cache; max_seqlen and max_kvlen are ignored. */
typedef struct quire_pmx_dynamic_multi_head_cache_attention_desc {
    size_t struct_size;
    int32_t num_heads, head_dim;
    int32_t is_causal, is_alibi;
    int32_t num_kv_heads; /* 0: num_heads */
    int32_t num_layer, layer_idx;
    int32_t quant_bit;    /* 0, 8 or 4 */
    int32_t quant_group;  /* divides head_dim; 8 by init */
    int32_t cache_mode;   /* 0: offsets, 1: page table */
    int32_t cache_layout; /* 0 (MaxT,L,2,H,Dh)  1 (L,MaxT,2,H,Dh)  2 (L,2,MaxT,H,Dh)  3 (L,2,H,MaxT,Dh); H is Hk */
    int32_t page_size;    /* 128 by init; used in cache_mode 1 */
    quire_type query_type; /* T1: F32 or F16 */
    quire_type cache_type; /* T2: F32 or F16 (quant_bit 0), INT8 (8), INT4 (4); NONE: T1, INT8 or INT4 */
    quire_type scale_type; /* T3: F32 or F16; NONE: T1 */
    float softmax_scale;   /* extension; 0: 1 / sqrt(head_dim) */
    int32_t has_window, window_left, window_right; /* extensions, as in quire_attention_desc */
    float logits_soft_cap;
    quire_precision precision;
} quire_pmx_dynamic_multi_head_cache_attention_desc;

QUIRE_API void quire_pmx_dynamic_multi_head_cache_attention_desc_init(
    quire_pmx_dynamic_multi_head_cache_attention_desc *desc);
QUIRE_API quire_status quire_pmx_dynamic_multi_head_cache_attention_plan(
    quire_context *context, const quire_pmx_dynamic_multi_head_cache_attention_desc *desc, quire_plan **plan);

/* Inputs by the document's names. All integer tensors are INT64. */
typedef struct quire_pmx_dynamic_multi_head_cache_attention_args {
    size_t struct_size;
    const quire_tensor *query;         /* [n, H, D] T1 */
    const quire_tensor *current_key;   /* [n, Hk, D] T1 */
    const quire_tensor *current_value; /* [n, Hk, D] T1 */
    const quire_tensor *seqstarts;     /* [B + 1] */
    const quire_tensor *kvstarts;      /* [B + 1]; must agree with start_pos: T = start_pos[b] + S */
    const quire_tensor *cachestarts;   /* [B], or [B, MaxP] in cache_mode 1 */
    const quire_tensor *start_pos;     /* [B] */
    int64_t decoding_batches;          /* 0..B */
    int64_t max_seqlen, max_kvlen;     /* not used: quire computes them */
    const quire_tensor *cache;         /* by cache_layout, T2; written where the new tokens go */
    const quire_tensor *scale;         /* by cache_layout, last dimension D / quant_group, T3; written */
    const quire_tensor *attn_mask;     /* as quire_attention_args.attn_mask, T1; NULL: none */
    const quire_tensor *sinks;         /* extension, or NULL */
    const quire_tensor *attn_output;   /* [n, H, D] T1; written */
    const quire_tensor *lse;           /* extension, F32 [n, H], or NULL */
} quire_pmx_dynamic_multi_head_cache_attention_args;

QUIRE_API quire_status quire_pmx_dynamic_multi_head_cache_attention(
    const quire_plan *plan, const quire_pmx_dynamic_multi_head_cache_attention_args *args);
QUIRE_API quire_status quire_prepare_pmx_dynamic_multi_head_cache_attention(
    const quire_plan *plan, const quire_pmx_dynamic_multi_head_cache_attention_args *args, quire_run **run);

/* ---- OpenPPL PMX, dynamic_batching.MultiHeadAttention --------------------------------------------------- */

/* Attention of ragged queries over plain keys and values. The document wants one length for the queries and keys of
 * a causal sequence; quire takes any. */
typedef struct quire_pmx_dynamic_multi_head_attention_desc {
    size_t struct_size;
    int32_t num_heads, head_dim;
    int32_t is_causal, is_alibi;
    int32_t num_kv_heads; /* 0: num_heads */
    quire_type type;      /* T: F32 or F16 */
    float softmax_scale; /* extensions, as in quire_pmx_dynamic_multi_head_cache_attention_desc */
    int32_t has_window, window_left, window_right;
    float logits_soft_cap;
    quire_precision precision;
} quire_pmx_dynamic_multi_head_attention_desc;

QUIRE_API void quire_pmx_dynamic_multi_head_attention_desc_init(quire_pmx_dynamic_multi_head_attention_desc *desc);
QUIRE_API quire_status quire_pmx_dynamic_multi_head_attention_plan(
    quire_context *context, const quire_pmx_dynamic_multi_head_attention_desc *desc, quire_plan **plan);

typedef struct quire_pmx_dynamic_multi_head_attention_args {
    size_t struct_size;
    const quire_tensor *query;      /* [n, H, D] T */
    const quire_tensor *key;        /* [>= kvstarts[B], Hk, D] T: key j of sequence b is row kvstarts[b] + j */
    const quire_tensor *value;      /* as key */
    const quire_tensor *seqstarts;  /* INT64 [B + 1] */
    const quire_tensor *kvstarts;   /* INT64 [B + 1] */
    int64_t decoding_batches;       /* 0..B */
    int64_t max_seqlen, max_kvlen;  /* not used: quire computes them */
    const quire_tensor *attn_mask;  /* T, [n, >= kvstarts[B]] or [H or 1, n, >= kvstarts[B]], added to the scores: of
                                       a sequence only the block of its own rows and columns counts; NULL: none */
    const quire_tensor *sinks;      /* extension, or NULL */
    const quire_tensor *attn_output; /* [n, H, D] T; written */
    const quire_tensor *lse;        /* extension, F32 [n, H], or NULL */
} quire_pmx_dynamic_multi_head_attention_args;

QUIRE_API quire_status quire_pmx_dynamic_multi_head_attention(
    const quire_plan *plan, const quire_pmx_dynamic_multi_head_attention_args *args);
QUIRE_API quire_status quire_prepare_pmx_dynamic_multi_head_attention(
    const quire_plan *plan, const quire_pmx_dynamic_multi_head_attention_args *args, quire_run **run);

/* ---- OpenPPL PMX, dynamic_batching.KeyValueCache -------------------------------------------------------- */

/* Stores the new keys and values, then gives back those of all positions of each sequence as the cache has them:
 * quantised ones as code * scale in float32, rounded to T1 once. */
typedef struct quire_pmx_dynamic_key_value_cache_desc {
    size_t struct_size;
    int32_t num_kv_heads, head_dim; /* Hk and D; the document takes them from current_key */
    int32_t num_layer, layer_idx;
    int32_t quant_bit;    /* 0, 8 or 4 */
    int32_t quant_group;  /* divides head_dim; 8 by init */
    int32_t num_repeat;   /* output heads h * num_repeat .. + num_repeat - 1 are kv head h; 1 by init */
    int32_t cache_mode;   /* 0: offsets, 1: page table */
    int32_t cache_layout; /* as in quire_pmx_dynamic_multi_head_cache_attention_desc */
    int32_t page_size;    /* 128 by init; used in cache_mode 1 */
    quire_type type;       /* T1: F32 or F16 */
    quire_type cache_type; /* T2: F32 or F16 (quant_bit 0), INT8 (8), INT4 (4); NONE: T1, INT8 or INT4 */
    quire_type scale_type; /* T3: F32 or F16; NONE: T1 */
} quire_pmx_dynamic_key_value_cache_desc;

QUIRE_API void quire_pmx_dynamic_key_value_cache_desc_init(quire_pmx_dynamic_key_value_cache_desc *desc);
QUIRE_API quire_status quire_pmx_dynamic_key_value_cache_plan(
    quire_context *context, const quire_pmx_dynamic_key_value_cache_desc *desc, quire_plan **plan);

typedef struct quire_pmx_dynamic_key_value_cache_args {
    size_t struct_size;
    const quire_tensor *current_key;   /* [n, Hk, D] T1 */
    const quire_tensor *current_value; /* [n, Hk, D] T1 */
    const quire_tensor *seqstarts;     /* INT64 [B + 1] */
    const quire_tensor *kvstarts;      /* INT64 [B + 1]; must agree with start_pos: T = start_pos[b] + S */
    const quire_tensor *cachestarts;   /* INT64 [B], or [B, MaxP] in cache_mode 1 */
    const quire_tensor *start_pos;     /* INT64 [B] */
    int64_t max_seqlen, max_kvlen;     /* not used: quire computes them */
    const quire_tensor *cache;         /* by cache_layout, T2; written where the new tokens go */
    const quire_tensor *scale;         /* by cache_layout, last dimension D / quant_group, T3; written */
    const quire_tensor *key;           /* [kvstarts[B], Hk * num_repeat, D] T1; written */
    const quire_tensor *value;         /* as key */
} quire_pmx_dynamic_key_value_cache_args;

QUIRE_API quire_status quire_pmx_dynamic_key_value_cache(
    const quire_plan *plan, const quire_pmx_dynamic_key_value_cache_args *args);
QUIRE_API quire_status quire_prepare_pmx_dynamic_key_value_cache(
    const quire_plan *plan, const quire_pmx_dynamic_key_value_cache_args *args, quire_run **run);

/* ---- OpenPPL PMX, MultiHeadCacheAttention --------------------------------------------------------------- */

/* Sequences of one length S, whose new tokens go to positions start_pos .. of rows of their own in the cache; then
 * attention over positions 0 .. start_pos + S - 1, T of them. The document wants S = T where is_causal; quire takes
 * any start_pos. */
typedef struct quire_pmx_multi_head_cache_attention_desc {
    size_t struct_size;
    int32_t num_heads, head_dim;
    int32_t is_causal, is_alibi;
    int32_t num_kv_heads; /* 0: num_heads */
    int32_t num_layer, layer_idx;
    int32_t quant_bit;    /* 0, 8 or 4 */
    int32_t quant_group;  /* divides head_dim; 8 by init */
    int32_t cache_layout; /* 0 (MaxB,L,2,MaxS,H,Dh)  1 (L,MaxB,2,H,MaxS,Dh); H is Hk */
    quire_type query_type; /* T1: F32 or F16 */
    quire_type cache_type; /* T2: F32 or F16 (quant_bit 0), INT8 (8), INT4 (4); NONE: T1, INT8 or INT4 */
    quire_type scale_type; /* T3: F32 or F16; NONE: T1 */
    float softmax_scale; /* extensions, as in quire_pmx_dynamic_multi_head_cache_attention_desc */
    int32_t has_window, window_left, window_right;
    float logits_soft_cap;
    quire_precision precision;
} quire_pmx_multi_head_cache_attention_desc;

QUIRE_API void quire_pmx_multi_head_cache_attention_desc_init(quire_pmx_multi_head_cache_attention_desc *desc);
QUIRE_API quire_status quire_pmx_multi_head_cache_attention_plan(
    quire_context *context, const quire_pmx_multi_head_cache_attention_desc *desc, quire_plan **plan);

typedef struct quire_pmx_multi_head_cache_attention_args {
    size_t struct_size;
    const quire_tensor *query;         /* [B, S, H, D] T1 */
    const quire_tensor *current_key;   /* [B, S, Hk, D] T1 */
    const quire_tensor *current_value; /* [B, S, Hk, D] T1; the document's currnet_value */
    const quire_tensor *start_pos;     /* INT64 [] or [1]; start_pos + S <= MaxS */
    const quire_tensor *cache;         /* by cache_layout, T2; B <= MaxB; written where the new tokens go */
    const quire_tensor *scale;         /* by cache_layout, last dimension D / quant_group, T3; written */
    const quire_tensor *attn_mask;     /* T1, [S, T], [H, S, T] or [B, H, S, T], added to the scores. Any of them may
                                          be 1 and is broadcast; columns past T are not used. NULL: none */
    const quire_tensor *sinks;         /* extension, or NULL */
    const quire_tensor *attn_output;   /* [B, S, H, D] T1; written */
    const quire_tensor *lse;           /* extension, F32 [B, S, H], or NULL */
} quire_pmx_multi_head_cache_attention_args;

QUIRE_API quire_status quire_pmx_multi_head_cache_attention(
    const quire_plan *plan, const quire_pmx_multi_head_cache_attention_args *args);
QUIRE_API quire_status quire_prepare_pmx_multi_head_cache_attention(
    const quire_plan *plan, const quire_pmx_multi_head_cache_attention_args *args, quire_run **run);

/* ---- OpenPPL PMX, MultiHeadAttention -------------------------------------------------------------------- */

/* Sequences of one length S, keys and values of one length T; either may be the longer. */
typedef struct quire_pmx_multi_head_attention_desc {
    size_t struct_size;
    int32_t num_heads, head_dim;
    int32_t is_causal, is_alibi;
    int32_t num_kv_heads; /* 0: num_heads */
    quire_type type;      /* T: F32 or F16 */
    float softmax_scale; /* extensions, as in quire_pmx_dynamic_multi_head_cache_attention_desc */
    int32_t has_window, window_left, window_right;
    float logits_soft_cap;
    quire_precision precision;
} quire_pmx_multi_head_attention_desc;

QUIRE_API void quire_pmx_multi_head_attention_desc_init(quire_pmx_multi_head_attention_desc *desc);
QUIRE_API quire_status quire_pmx_multi_head_attention_plan(
    quire_context *context, const quire_pmx_multi_head_attention_desc *desc, quire_plan **plan);

typedef struct quire_pmx_multi_head_attention_args {
    size_t struct_size;
    const quire_tensor *query;       /* [B, S, H, D] T */
    const quire_tensor *key;         /* [B, T, Hk, D] T */
    const quire_tensor *value;       /* [B, T, Hk, D] T */
    const quire_tensor *attn_mask;   /* as in quire_pmx_multi_head_cache_attention_args */
    const quire_tensor *sinks;       /* extension, or NULL */
    const quire_tensor *attn_output; /* [B, S, H, D] T; written */
    const quire_tensor *lse;         /* extension, F32 [B, S, H], or NULL */
} quire_pmx_multi_head_attention_args;

QUIRE_API quire_status quire_pmx_multi_head_attention(
    const quire_plan *plan, const quire_pmx_multi_head_attention_args *args);
QUIRE_API quire_status quire_prepare_pmx_multi_head_attention(
    const quire_plan *plan, const quire_pmx_multi_head_attention_args *args, quire_run **run);

/* ---- OpenPPL PMX, KeyValueCache ------------------------------------------------------------------------- */

/* As dynamic_batching.KeyValueCache, for sequences of one length. */
typedef struct quire_pmx_key_value_cache_desc {
    size_t struct_size;
    int32_t num_kv_heads, head_dim; /* Hk and D; the document takes them from current_key */
    int32_t num_layer, layer_idx;
    int32_t quant_bit;    /* 0, 8 or 4 */
    int32_t quant_group;  /* divides head_dim; 8 by init */
    int32_t num_repeat;   /* output heads h * num_repeat .. + num_repeat - 1 are kv head h; 1 by init */
    int32_t cache_layout; /* as in quire_pmx_multi_head_cache_attention_desc */
    quire_type type;       /* T1: F32 or F16 */
    quire_type cache_type; /* T2: F32 or F16 (quant_bit 0), INT8 (8), INT4 (4); NONE: T1, INT8 or INT4 */
    quire_type scale_type; /* T3: F32 or F16; NONE: T1 */
} quire_pmx_key_value_cache_desc;

QUIRE_API void quire_pmx_key_value_cache_desc_init(quire_pmx_key_value_cache_desc *desc);
QUIRE_API quire_status quire_pmx_key_value_cache_plan(
    quire_context *context, const quire_pmx_key_value_cache_desc *desc, quire_plan **plan);

typedef struct quire_pmx_key_value_cache_args {
    size_t struct_size;
    const quire_tensor *current_key;   /* [B, S, Hk, D] T1 */
    const quire_tensor *current_value; /* [B, S, Hk, D] T1 */
    const quire_tensor *start_pos;     /* INT64 [] or [1]; start_pos + S <= MaxS */
    const quire_tensor *cache;         /* by cache_layout, T2; B <= MaxB; written where the new tokens go */
    const quire_tensor *scale;         /* by cache_layout, last dimension D / quant_group, T3; written */
    const quire_tensor *key;           /* [B, start_pos + S, Hk * num_repeat, D] T1; written */
    const quire_tensor *value;         /* as key */
} quire_pmx_key_value_cache_args;

QUIRE_API quire_status quire_pmx_key_value_cache(
    const quire_plan *plan, const quire_pmx_key_value_cache_args *args);
QUIRE_API quire_status quire_prepare_pmx_key_value_cache(
    const quire_plan *plan, const quire_pmx_key_value_cache_args *args, quire_run **run);

/* ---- DirectML, DML_MULTIHEAD_ATTENTION1_OPERATOR_DESC ----------------------------------------------------- */

/* How mask_tensor says which keys are padding, in DirectML's order. Keys count past and new ones together. */
typedef QUIRE_ENUM(quire_directml_mask_type) {
    QUIRE_DIRECTML_MASK_NONE = 0,                                /* no mask_tensor */
    QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH = 1,                 /* [1, B]: padding from that key on */
    QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START = 2,              /* [2, B]: ends (exclusive), then starts */
    QUIRE_DIRECTML_MASK_KEY_QUERY_SEQUENCE_LENGTH_START_END = 3, /* [3 * B + 2]: the first B are key lengths; the
                                                                    rest (of queries) changes nothing */
    QUIRE_DIRECTML_MASK_BOOLEAN = 4                              /* [B or 1, H or 1, S or 1, T or 1]: 0 is padding */
} quire_directml_mask_type;

/* Attributes by the document's names, and what its tensor descriptions say. Which tensors there are may differ
 * from call to call. */
typedef struct quire_directml_multihead_attention1_desc {
    size_t struct_size;
    float scale;                  /* of q . k, finite; usually 1 / sqrt(head_size). No default */
    float mask_filter_value;      /* added to the scores of padding; -10000 by init */
    int32_t query_head_count;     /* H */
    int32_t key_value_head_count; /* Hk, divides H; 0: H */
    quire_directml_mask_type mask_type;
    quire_type data_type;         /* F32 or F16: of all tensors but mask_tensor */
    int32_t head_size;            /* D, 1..1024 */
    int32_t value_head_size;      /* Dv, 1..1024; 0: D */
    quire_precision precision;    /* extension */
} quire_directml_multihead_attention1_desc;

QUIRE_API void quire_directml_multihead_attention1_desc_init(quire_directml_multihead_attention1_desc *desc);
QUIRE_API quire_status quire_directml_multihead_attention1_plan(
    quire_context *context, const quire_directml_multihead_attention1_desc *desc, quire_plan **plan);

/* scores = scale * q . k + relative_position_bias; where the mask says padding, mask_filter_value is added to
 * them (it hides nothing by itself: a row of padding alone gets the softmax of its scores, as far as float32
 * keeps them beside mask_filter_value; -Inf, here or in relative_position_bias, hides).
 *
 * N new keys and `past` ones (where given): T = past + N. Keys and values are the past's, then the new ones; with
 * a past and no others it is all of them (cross attention). Queries, new keys and new values come each from one
 * of the tensors that hold them; the stacked tensors need H == Hk where they hold queries, D == Dv where they hold
 * values. NULL: not given. Tensors with more dimensions, up to 5, have lengths of 1 before those written here;
 * bias and mask may have fewer where these are 1. The last dimension has stride 1 in all but mask,
 * relative_position_bias and past_sequence_lengths.
 *
 * past_sequence_lengths, where pasts of a batch are padded to a common length: the past of sequence b is its first
 * past_sequence_lengths[b] positions; the others are never read. Its new keys follow those directly, so that key
 * t is position t of the sequence, also in mask and relative_position_bias; past_sequence_lengths[b] + N and
 * later keys are not there. The presents are in the same order, zero from there on: they are the pasts of a next
 * call, with lengths of N more. */
typedef struct quire_directml_multihead_attention1_args {
    size_t struct_size;
    const quire_tensor *query_tensor;                   /* [B, S, H * D] */
    const quire_tensor *key_tensor;                     /* [B, N, Hk * D] */
    const quire_tensor *value_tensor;                   /* [B, N, Hk * Dv] */
    const quire_tensor *stacked_query_key_tensor;       /* [B, S, H, 2, D], N = S; with value_tensor */
    const quire_tensor *stacked_key_value_tensor;       /* [B, N, Hk, 2, D]; with query_tensor */
    const quire_tensor *stacked_query_key_value_tensor; /* [B, S, H, 3, D], N = S */
    const quire_tensor *bias_tensor; /* [H * D + Hk * D + Hk * Dv]: added to queries, new keys and new values, not to
                                        the past; the presents hold them with it */
    const quire_tensor *mask_tensor; /* INT32, by desc.mask_type */
    const quire_tensor *relative_position_bias_tensor; /* [B or 1, H or 1, S or 1, T or 1]; 4 or 5 dimensions */
    const quire_tensor *past_key_tensor;               /* [B, Hk, past, D] */
    const quire_tensor *past_value_tensor;             /* [B, Hk, past, Dv] */
    const quire_tensor *past_sequence_lengths_tensor;  /* [B], data_type or INT32: whole numbers 0..past */
    const quire_tensor *output_tensor;                 /* [B, S, H * Dv]; written */
    const quire_tensor *output_present_key_tensor;     /* [B, Hk, T, D] or NULL; written */
    const quire_tensor *output_present_value_tensor;   /* [B, Hk, T, Dv] or NULL; written */
} quire_directml_multihead_attention1_args;

QUIRE_API quire_status quire_directml_multihead_attention1(const quire_plan *plan,
                                                           const quire_directml_multihead_attention1_args *args);
QUIRE_API quire_status quire_prepare_directml_multihead_attention1(
    const quire_plan *plan, const quire_directml_multihead_attention1_args *args, quire_run **run);

/* ---- MindSpore, nn.transformer.MultiHeadAttention ------------------------------------------------------- */

/* A layer: MultiHeadAttention(query, key, value) = Dropout(Concat(heads) W^O + b^O), with
 *     q = query_tensor W1^T + b1,  k = key_tensor W2^T + b2,  v = value_tensor W3^T + b3, by heads of hidden_size /
 *     num_heads elements, and head = Dropout(softmax(q . k / sqrt(D) + (1 - attention_mask) * -10000)) v.
 * Its plan is the layer's handle: it holds the weights, which are read and packed while it is made and may be freed
 * after; quire_plan_destroy destroys it. Letters: B is batch_size, S src_seq_length, T tgt_seq_length, H num_heads,
 * D hidden_size / num_heads (at most 1024). The products with weights run through oneDNN, on the instruction set that it
 * chooses (on "portable" as plain loops), in the threads of quire or of its caller's slices; quire_plan_explain says
 * which. Unlike the other operators, a layer's calls allocate a little memory. */
typedef struct quire_mindspore_multi_head_attention_desc {
    size_t struct_size;
    int32_t batch_size;     /* B, as all lengths here >= 1 */
    int32_t src_seq_length; /* S: tokens of query_tensor */
    int32_t tgt_seq_length; /* T: tokens of key_tensor and value_tensor; S where use_past */
    int32_t hidden_size;    /* a multiple of num_heads */
    int32_t num_heads;
    float hidden_dropout_rate;    /* of the output; 0 to less than 1; 0.1 by init. Only in training, see args */
    float attention_dropout_rate; /* of the probabilities; 0.1 by init */
    quire_type compute_dtype;        /* F16 (by init) or F32: inputs and weights are rounded to it, and so are q, k, v,
                                        attention's output and the layer's. Sums are in float32 in either */
    quire_type softmax_compute_type; /* F32 (by init) or F16. Either way it is computed in float32 */
    quire_type param_init_type;      /* F32 (by init) or F16: of the weights and biases given here */
    int32_t use_past;                /* 0 or 1: the layer is used for incremental prediction */
    int32_t parallel_config;         /* most threads of the context that a call uses; 0: all. Slices: as many as the
                                        caller has */
    const quire_tensor *dense1_weight, *dense1_bias;         /* of queries: [hidden_size (out), hidden_size (in)], and
                                                                [hidden_size] */
    const quire_tensor *dense2_weight, *dense2_bias;         /* of keys, likewise */
    const quire_tensor *dense3_weight, *dense3_bias;         /* of values */
    const quire_tensor *projection_weight, *projection_bias; /* of the output: [hidden_size (in), hidden_size (out)] */
    quire_precision precision;       /* extension: of attention */
} quire_mindspore_multi_head_attention_desc;

QUIRE_API void quire_mindspore_multi_head_attention_desc_init(quire_mindspore_multi_head_attention_desc *desc);
QUIRE_API quire_status quire_mindspore_multi_head_attention_plan(
    quire_context *context, const quire_mindspore_multi_head_attention_desc *desc, quire_plan **plan);

/* One call. Rows [S, hidden_size] of the inputs come as [B, S, hidden_size] or [B * S, hidden_size]; their last
 * dimension has stride 1, each may be F32 or F16 whatever compute_dtype is.
 *
 * attention_mask: 1 keeps a key, 0 adds -10000 to its score (a key is not hidden by that: a row of zeros alone gets the
 * softmax of its scores, as far as float32 keeps them beside -10000), and what is between does so in proportion.
 *
 * use_past, is_first_iteration 1: as without a past, all T keys being attended to as the mask says; the presents are
 * zero from position batch_valid_length[b] on. key_past and value_past are not read, and may be NULL.
 * use_past, is_first_iteration 0: one token a sequence (S and the tokens of key_tensor are 1 in the shapes below).
 * It becomes position batch_valid_length[b] and sees positions 0 .. batch_valid_length[b] as the mask says; what the past
 * holds after them has no effect. The presents are the past with the new position in place of what it held there. */
typedef struct quire_mindspore_multi_head_attention_args {
    size_t struct_size;
    const quire_tensor *query_tensor;   /* [B, S, hidden_size] or [B * S, hidden_size], F32 or F16 */
    const quire_tensor *key_tensor;     /* [B, T, hidden_size] or [B * T, hidden_size], F32 or F16 */
    const quire_tensor *value_tensor;   /* as key_tensor */
    const quire_tensor *attention_mask; /* [B, S, T] or [B, H or 1, S, T], F32 or F16; NULL: none */
    const quire_tensor *key_past;       /* F16 [B, H, D, T]; with use_past only */
    const quire_tensor *value_past;     /* F16 [B, H, T, D] */
    const quire_tensor *batch_valid_length; /* INT32 [B]: tokens computed so far, 0 .. T in the first iteration (those of
                                               this call), else 0 .. T - 1; with use_past only, and then required */
    int32_t is_first_iteration;         /* 0 or 1; counts where use_past */
    int32_t training;                   /* 0: nothing is dropped; 1: the rates of the layer count */
    int64_t dropout_seed, dropout_step; /* as in quire_attention_args. Element (row, column) of the [B * S, hidden_size]
                                           output is that of plane 2^32 - 1 (in place of b * H + h) */
    const quire_tensor *output;         /* as query_tensor, of its type, in either shape; written */
    const quire_tensor *layer_present_0; /* keys [B, H, D, T], compute_dtype, or NULL; written */
    const quire_tensor *layer_present_1; /* values [B, H, T, D], compute_dtype, or NULL; written */
} quire_mindspore_multi_head_attention_args;

QUIRE_API quire_status quire_mindspore_multi_head_attention(
    const quire_plan *plan, const quire_mindspore_multi_head_attention_args *args);
QUIRE_API quire_status quire_prepare_mindspore_multi_head_attention(
    const quire_plan *plan, const quire_mindspore_multi_head_attention_args *args, quire_run **run);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_QUIRE_H_ */
