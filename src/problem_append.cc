// Problems that write a cache, or read it back.
#include "src/problem.h"

namespace quire {
namespace {

// New tokens: packed rows with seqstarts, or [B, S, Hk, D].
Status check_new_tokens(const quire_append_args& args, AppendProblem* p) {
    const AppendSpec& spec = *p->spec;
    p->batched = args.new_key != nullptr && args.new_key->rank == 4;
    if (!p->batched) {
        QUIRE_TRY(check_rows("new_key", args.new_key, spec.type, "[n, Hk, D]", {kAny, spec.Hk, spec.D},
                             &p->new_key));
        p->n = p->queries_at.uniform = args.new_key->shape[0];
        QUIRE_TRY(check_rows("new_value", args.new_value, spec.type, "[n, Hk, Dv]", {p->n, spec.Hk, spec.Dv},
                             &p->new_value));
        return check_sequences(args.seqstarts, p->n, &p->queries_at.given, &p->B);
    }
    QUIRE_TRY(check_rows("new_key", args.new_key, spec.type, "[B, S, Hk, D]", {kAny, kAny, spec.Hk, spec.D},
                         &p->new_key));
    p->B = args.new_key->shape[0];
    QUIRE_TRY(check_batch("new_key", p->B));
    p->queries_at.uniform = args.new_key->shape[1];
    p->n = p->B * p->queries_at.uniform;
    QUIRE_TRY(check_rows("new_value", args.new_value, spec.type, "[B, S, Hk, Dv]",
                         {p->B, p->queries_at.uniform, spec.Hk, spec.Dv}, &p->new_value));
    if (args.seqstarts != nullptr)
        return invalid("seqstarts is given: must be NULL with a new_key [B, S, Hk, D]");
    return {};
}

// Positions start_pos[b] .. of every sequence are in the cache.
Status check_start_pos(const quire_tensor* start_pos, AppendProblem* p) {
    const bool one = start_pos != nullptr && start_pos->rank == 0;
    if (one)
        QUIRE_TRY(check_index("start_pos", start_pos, "[]", {}, &p->start_pos));
    else
        QUIRE_TRY(check_index("start_pos", start_pos, "[B]", {p->B}, &p->start_pos));
    for (int64_t b = 0; b < p->B; ++b) {
        const int64_t start = p->start_pos(b), count = p->queries(b), slots = p->cache.slots;
        const auto name = [&] { return one ? "start_pos" : "start_pos[" + std::to_string(b) + "]"; };
        int64_t keys;
        if (start < 0) return invalid("%s is %lld: must be >= 0", name().c_str(), (long long)start);
        if (__builtin_add_overflow(start, count, &keys))
            return invalid("%s is %lld: must leave room for %lld more positions in 63 bits", name().c_str(),
                           (long long)start, (long long)count);
        if (count == 0) continue;
        if (!p->cache.batched)
            QUIRE_TRY(check_positions(p->cache, b, keys));
        else if (keys > slots)
            return invalid("%s is %lld: positions %lld to %lld must lie in the %lld rows of key",
                           name().c_str(), (long long)start, (long long)start, (long long)(keys - 1),
                           (long long)slots);
    }
    return {};
}

Status check_table(const char* name, const quire_tensor* tensor, const Shape& shape, const char** base,
                   int64_t* stride) {
    QUIRE_TRY(check_tensor(name, tensor, QUIRE_F32, "[MaxPos, R / 2]", shape));
    QUIRE_TRY(check_contiguous(name, *tensor));
    *base = static_cast<const char*>(tensor->data);
    *stride = stride_bytes(*tensor, 0);
    return {};
}

// Every position that the problem rotates by has a row of the tables.
Status check_table_positions(int64_t rows, const AppendProblem& p) {
    for (int64_t b = 0; b < p.B; ++b)
        for (int64_t i = 0; i < p.queries(b); ++i) {
            const int64_t position = p.position(b, i);
            if (position >= 0 && position < rows) continue;
            std::string at = std::to_string(p.batched ? b : p.queries_at.begin(b) + i);
            if (p.batched) at += ", " + std::to_string(i);
            return p.positions
                       ? invalid("positions[%s] is %lld: must lie in the %lld rows of rotary_cos", at.c_str(),
                                 (long long)position, (long long)rows)
                       : invalid("rotary_cos has %lld rows: token [%s] is at position %lld of its sequence",
                                 (long long)rows, at.c_str(), (long long)position);
        }
    return {};
}

Status check_read_written(const ReadArgs& args) {
    QUIRE_TRY(check_written("key", *args.key));
    return check_written("value", *args.value);
}

}  // namespace

Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem) {
    *problem = AppendProblem();
    AppendProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_new_tokens(args, &p));
    QUIRE_TRY(check_cache({args.key, args.value, args.key_scale, args.value_scale, args.cachestarts}, spec,
                          p.B, &p.cache));
    for (const auto& [name, tensor] :
         {std::pair("key", args.key), std::pair("value", args.value), std::pair("key_scale", args.key_scale),
          std::pair("value_scale", args.value_scale)})
        if (tensor != nullptr) QUIRE_TRY(check_written(name, *tensor));
    if (!p.cache.batched) QUIRE_TRY(check_cachestarts(args.cachestarts, p.B, spec.page_size, &p.cache));
    QUIRE_TRY(check_start_pos(args.start_pos, &p));
    return check_rotary({args.positions, args.rotary_cos, args.rotary_sin}, &p);
}

Status check_rotary(const RotaryTensors& tensors, AppendProblem* p) {
    const Rotation& rotation = p->spec->key_rotation;
    if (rotation.rotary == QUIRE_ROTARY_NONE) {
        for (const auto& [name, tensor] :
             {std::pair("positions", tensors.positions), std::pair("rotary_cos", tensors.cos),
              std::pair("rotary_sin", tensors.sin)})
            if (tensor != nullptr)
                return invalid("%s is given: must be NULL without a rotary embedding", name);
        return {};
    }
    Shape shape{kAny, rotation.rotary_dim / 2};
    QUIRE_TRY(check_table("rotary_cos", tensors.cos, shape, &p->rotary.cos, &p->rotary.cos_stride));
    const int64_t rows = shape[0] = tensors.cos->shape[0];
    QUIRE_TRY(check_table("rotary_sin", tensors.sin, shape, &p->rotary.sin, &p->rotary.sin_stride));
    if (tensors.positions != nullptr)
        QUIRE_TRY(p->batched ? check_index("positions", tensors.positions, "[B, S]",
                                           {p->B, p->queries_at.uniform}, &p->positions)
                             : check_index("positions", tensors.positions, "[n]", {p->n}, &p->positions));
    return check_table_positions(rows, *p);
}

Status make_read_problem(const ReadSpec& spec, const ReadArgs& args, ReadProblem* problem) {
    *problem = ReadProblem();
    ReadProblem& p = *problem;
    p.spec = &spec;
    p.B = args.B;
    p.batched = args.kvstarts == nullptr;
    const int heads = spec.Hk * spec.repeat;
    if (p.batched) {
        QUIRE_TRY(check_cache(args.cache, spec, p.B, &p.cache));
        const int64_t T = p.keys_at.uniform = p.cache.slots;
        const char* letters = "[B, start_pos + S, Hk * num_repeat, D]";
        QUIRE_TRY(check_rows("key", args.key, spec.type, letters, {p.B, T, heads, spec.D}, &p.key));
        QUIRE_TRY(check_rows("value", args.value, spec.type, letters, {p.B, T, heads, spec.Dv}, &p.value));
        return check_read_written(args);
    }
    QUIRE_TRY(check_starts("kvstarts", args.kvstarts, p.B, kAny, &p.keys_at.given));
    QUIRE_TRY(check_cache(args.cache, spec, p.B, &p.cache));
    QUIRE_TRY(check_cachestarts(args.cache.cachestarts, p.B, spec.page_size, &p.cache));
    for (int64_t b = 0; b < p.B; ++b) QUIRE_TRY(check_positions(p.cache, b, p.keys(b)));
    const int64_t rows = p.keys_at.begin(p.B);
    const char* letters = "[kvstarts[B], Hk * num_repeat, D]";
    QUIRE_TRY(check_rows("key", args.key, spec.type, letters, {rows, heads, spec.D}, &p.key));
    QUIRE_TRY(check_rows("value", args.value, spec.type, letters, {rows, heads, spec.Dv}, &p.value));
    return check_read_written(args);
}

}  // namespace quire
