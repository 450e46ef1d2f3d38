/* reload LIBRARY inline|threads: loads the shared library, uses it, unloads it, three times. A program of its
 * own, because the tests are linked with oneTBB: here oneTBB comes and goes with the library. After inline
 * use the library must be gone; once oneTBB has threads, both must stay, for the threads' sake. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quire/quire.h"

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

/* ISO C has no conversion from an object pointer to a function pointer. */
static void load(void* library, const char* name, void* function) {
    void* address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(function, &address, sizeof address);
}

static int is_mapped(const char* name) {
    char line[4096];
    int found = 0;
    FILE* maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) found = found || strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

enum { kQueries = 64, kKeys = 64, kHeads = 4, kDim = 16, kNumbers = kKeys * kHeads * kDim };
static float numbers[kNumbers], output[kNumbers], first_output[kNumbers];

static void use(void* library, int threads) {
    quire_status (*context_create)(const quire_context_options*, quire_context**);
    void (*context_destroy)(quire_context*);
    void (*desc_init)(quire_attention_desc*);
    quire_status (*make_plan)(quire_context*, const quire_attention_desc*, quire_plan**);
    quire_status (*attention)(const quire_plan*, const quire_attention_args*);
    void (*plan_destroy)(quire_plan*);
    quire_tensor (*tensor_of)(void*, quire_type, int32_t, const int64_t*);
    const int64_t shape[] = {kQueries, kHeads, kDim};
    quire_context_options options = {sizeof options, NULL, 1, 0, NULL, NULL, 0};
    quire_attention_desc desc;
    quire_attention_args args = {0};
    quire_tensor in, out;
    quire_context* context = NULL;
    quire_plan* plan = NULL;

    load(library, "quire_context_create", &context_create);
    load(library, "quire_context_destroy", &context_destroy);
    load(library, "quire_attention_desc_init", &desc_init);
    load(library, "quire_attention_plan", &make_plan);
    load(library, "quire_attention", &attention);
    load(library, "quire_plan_destroy", &plan_destroy);
    load(library, "quire_tensor_of", &tensor_of);

    in = tensor_of(numbers, QUIRE_F32, 3, shape);
    out = tensor_of(output, QUIRE_F32, 3, shape);
    desc_init(&desc);
    desc.num_heads = kHeads;
    desc.head_dim = kDim;
    args.struct_size = sizeof args;
    args.query = args.key = args.value = &in;
    args.output = &out;
    options.num_threads = threads;
    CHECK(context_create(&options, &context) == QUIRE_OK);
    CHECK(make_plan(context, &desc, &plan) == QUIRE_OK);
    memset(output, 0, sizeof output);
    CHECK(attention(plan, &args) == QUIRE_OK);
    plan_destroy(plan);
    context_destroy(context);
    CHECK(make_plan(NULL, &desc, &plan) == QUIRE_OK); /* the default context is destroyed by unloading */
    plan_destroy(plan);
}

int main(int argc, char** argv) {
    const struct timespec moment = {0, 50 * 1000 * 1000};
    int i, round, inline_use;
    CHECK(argc == 3);
    inline_use = strcmp(argv[2], "inline") == 0;
    for (i = 0; i < kNumbers; ++i) numbers[i] = (float)(i * 37 % 101 - 50) / 32;
    for (round = 0; round < 3; ++round) {
        void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        use(library, inline_use ? 1 : 4);
        CHECK(dlclose(library) == 0);
        if (inline_use) CHECK(!is_mapped("libquire"));
        nanosleep(&moment, NULL); /* a thread that was left behind would run into nothing */
        if (round == 0) memcpy(first_output, output, sizeof output);
        CHECK(memcmp(first_output, output, sizeof output) == 0);
    }
    printf("used %d times; the library is %s\n", round, is_mapped("libquire") ? "still there" : "gone");
    return 0;
}
