/* quire.h as a C99 program sees it. Compiled with -pedantic-errors; run by api_c99.cc, which prints what this
 * returns: NULL, or what went wrong. */
#include "quire/quire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char* quire_test_c99(void);

/* One query, two keys, values 1 and 3: the mean, as both keys are the same. */
static const char* attend(const quire_plan* plan) {
    static const int64_t query_shape[] = {1, 1, 8}, key_shape[] = {2, 1, 8};
    float query[8] = {1, 2, 3, 4, 5, 6, 7, 8}, key[16], value[16], output[8];
    quire_attention_args args;
    quire_tensor tensors[4];
    int i;
    for (i = 0; i < 16; ++i) {
        key[i] = 1;
        value[i] = i < 8 ? 1.0f : 3.0f;
    }
    tensors[0] = quire_tensor_of(query, QUIRE_F32, 3, query_shape);
    tensors[1] = quire_tensor_of(key, QUIRE_F32, 3, key_shape);
    tensors[2] = quire_tensor_of(value, QUIRE_F32, 3, key_shape);
    tensors[3] = quire_tensor_of(output, QUIRE_F32, 3, query_shape);
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.query = &tensors[0];
    args.key = &tensors[1];
    args.value = &tensors[2];
    args.output = &tensors[3];
    if (quire_attention(plan, &args) != QUIRE_OK) return quire_last_error();
    for (i = 0; i < 8; ++i)
        if (fabsf(output[i] - 2) > 1e-5f) return "the mean of 1 and 3 is not 2";
    return NULL;
}

const char* quire_test_c99(void) {
    quire_context_options options = {0};
    quire_attention_desc desc;
    quire_context* context = NULL;
    quire_plan* plan = NULL;
    const char* wrong = NULL;
    options.struct_size = sizeof options;
    options.num_threads = 1;
    if (quire_context_create(&options, &context) != QUIRE_OK) return quire_last_error();
    quire_attention_desc_init(&desc);
    desc.num_heads = 1;
    desc.head_dim = 8;
    if (quire_attention_plan(context, &desc, &plan) != QUIRE_OK)
        wrong = quire_last_error();
    else
        wrong = attend(plan);
    quire_plan_destroy(plan);
    quire_context_destroy(context);
    return wrong;
}
