// quire.pmx.key_value_cache and quire.pmx.dynamic_batching.key_value_cache
#include <algorithm>

#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/pmx.h"
#include "python/src/run.h"

namespace quire_python {

namespace {

constexpr const char* kDynamicDoc = R"(OpenPPL PMX dynamic_batching.KeyValueCache.

Stores the new keys and values in the cache (quantising them with quant_bit 8 or 4), then returns the keys and values
of all positions of each sequence, as the cache has them. B sequences; Hk key/value heads; D values a head; n new
tokens; L = num_layer. T1, T2, T3 are the document's types.

Args:
    current_key, current_value: [n, Hk, D] T1: float32 or float16.
    seqstarts: [B + 1] integers, where each sequence's new tokens begin; the last is n.
    kvstarts: [B + 1] integers, the same of all its tokens: kvstarts[b + 1] - kvstarts[b] is start_pos[b] and the
        new ones.
    cachestarts: [B] rows (cache_mode 0), or [B, MaxP] rows where pages begin (cache_mode 1).
    start_pos: [B] integers, positions of the first new tokens.
    max_seqlen, max_kvlen: not used.
    cache: T2: float32 or float16 (quant_bit 0), int8 (8), uint8 of packed int4 with D / 2 in the last dimension (4).
        Shape by cache_layout, with H for Hk and Dh for D: 0 (MaxT,L,2,H,Dh), 1 (L,MaxT,2,H,Dh), 2 (L,2,MaxT,H,Dh),
        3 (L,2,H,MaxT,Dh). Changed in place: never copied, an error if read-only.
    scale: T3: float32 or float16, the same shape with Dh / quant_group. Changed in place. None without quant_bit.
    num_layer, layer_idx, quant_bit, quant_group, cache_mode, cache_layout, page_size: attributes of the document.
    num_repeat: heads h * num_repeat .. + num_repeat - 1 of the results are key/value head h.
    context: a quire.Context; None: the default one.

Returns:
    (key, value), new NumPy arrays [kvstarts[B], Hk * num_repeat, D] of T1; quantised ones are code * scale.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

constexpr const char* kDoc = R"(OpenPPL PMX KeyValueCache.

Stores the new keys and values of sequences of one length in the cache (quantising them with quant_bit 8 or 4), then
returns the keys and values of all T = start_pos + S positions, as the cache has them.

Args:
    current_key, current_value: [B, S, Hk, D] T1: float32 or float16.
    start_pos, cache, scale: as in quire.pmx.multi_head_cache_attention.
    num_layer, layer_idx, quant_bit, quant_group, cache_layout: attributes of the document.
    num_repeat: heads h * num_repeat .. + num_repeat - 1 of the results are key/value head h.
    context: a quire.Context; None: the default one.

Returns:
    (key, value), new NumPy arrays [B, T, Hk * num_repeat, D] of T1; quantised ones are code * scale.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

// Positions of all sequences by the last of [B + 1] starts, or by a scalar. 0 where that cannot be: `cache`
// has fewer; the library then says what is wrong before it looks at the results.
int64_t positions(const Tensor& tensor, const Tensor& cache) {
    const quire_tensor* view = tensor.get();
    if (!view || view->rank > 1 || (view->rank == 1 && view->shape[0] == 0)) return 0;
    const int64_t last = view->rank == 1 ? view->shape[0] - 1 : 0;
    const int64_t number = static_cast<const int64_t*>(view->data)[last ? last * view->strides[0] : 0];
    double most = double(std::max<int64_t>(last, 1));
    for (int32_t i = 0; i < cache.rank(); ++i) most *= double(cache.shape(i));
    return number < 0 || double(number) > most ? 0 : number;
}

template <typename Desc>
void set_sizes(const Tensor& current_key, const Tensor& cache, const Tensor& scale, nb::handle num_repeat,
               Desc* desc) {
    const int32_t rank = current_key.rank();
    desc->num_kv_heads = to_int32(current_key.shape(rank - 2), "current_key's heads");
    desc->head_dim = to_int32(current_key.shape(rank - 1), "current_key's head size");
    desc->num_repeat = to_int32(num_repeat, "num_repeat");
    desc->type = current_key.type();
    desc->cache_type = cache.type();
    desc->scale_type = scale.type();
}

nb::object dynamic_key_value_cache(nb::handle current_key_array, nb::handle current_value_array,
                                   nb::handle seqstarts_array, nb::handle kvstarts_array,
                                   nb::handle cachestarts_array, nb::handle start_pos_array,
                                   nb::handle max_seqlen, nb::handle max_kvlen, nb::handle cache_array,
                                   nb::handle scale_array, nb::handle num_layer, nb::handle layer_idx,
                                   nb::handle quant_bit, nb::handle quant_group, nb::handle num_repeat,
                                   nb::handle cache_mode, nb::handle cache_layout, nb::handle page_size,
                                   nb::handle context_object) {
    Context& context = Context::of(context_object);
    auto desc =
        default_desc<quire_pmx_dynamic_key_value_cache_desc, quire_pmx_dynamic_key_value_cache_desc_init>();
    CacheAttributes{num_layer, layer_idx, quant_bit, quant_group, cache_layout}.set(&desc);
    desc.cache_mode = to_int32(cache_mode, "cache_mode");
    desc.page_size = to_int32(page_size, "page_size");
    Tensor current_key(current_key_array, input("current_key", kHalfOrFloat));
    Tensor current_value(current_value_array, input("current_value", kHalfOrFloat));
    Tensor seqstarts(seqstarts_array, index_input("seqstarts"));
    Tensor kvstarts(kvstarts_array, index_input("kvstarts"));
    Tensor cachestarts(cachestarts_array, index_input("cachestarts"));
    Tensor start_pos(start_pos_array, index_input("start_pos"));
    Tensor cache(cache_array, in_place("cache", cache_types(desc.quant_bit)));
    Tensor scale(scale_array, optional_in_place("scale", kHalfOrFloat));
    current_key.require_rank(3, "[n, Hk, D]");
    set_sizes(current_key, cache, scale, num_repeat, &desc);
    Plan plan = context.pmx_dynamic_key_value_cache.find_or_make(context.handle(), desc);

    const int64_t rows = positions(kvstarts, cache), heads = int64_t(desc.num_kv_heads) * desc.num_repeat;
    nb::object key = new_array(desc.type, {rows, heads, desc.head_dim});
    nb::object value = new_array(desc.type, {rows, heads, desc.head_dim});
    Tensor key_tensor(key, in_place("key", kHalfOrFloat)),
        value_tensor(value, in_place("value", kHalfOrFloat));

    quire_pmx_dynamic_key_value_cache_args args{};
    args.struct_size = sizeof args;
    args.current_key = current_key;
    args.current_value = current_value;
    args.seqstarts = seqstarts;
    args.kvstarts = kvstarts;
    args.cachestarts = cachestarts;
    args.start_pos = start_pos;
    args.max_seqlen = to_int64(max_seqlen, "max_seqlen");
    args.max_kvlen = to_int64(max_kvlen, "max_kvlen");
    args.cache = cache;
    args.scale = scale;
    args.key = key_tensor;
    args.value = value_tensor;
    run(context, plan, args, quire_pmx_dynamic_key_value_cache, quire_prepare_pmx_dynamic_key_value_cache);
    return nb::make_tuple(key, value);
}

nb::object key_value_cache(nb::handle current_key_array, nb::handle current_value_array,
                           nb::handle start_pos_array, nb::handle cache_array, nb::handle scale_array,
                           nb::handle num_layer, nb::handle layer_idx, nb::handle quant_bit,
                           nb::handle quant_group, nb::handle num_repeat, nb::handle cache_layout,
                           nb::handle context_object) {
    Context& context = Context::of(context_object);
    auto desc = default_desc<quire_pmx_key_value_cache_desc, quire_pmx_key_value_cache_desc_init>();
    CacheAttributes{num_layer, layer_idx, quant_bit, quant_group, cache_layout}.set(&desc);
    Tensor current_key(current_key_array, input("current_key", kHalfOrFloat));
    Tensor current_value(current_value_array, input("current_value", kHalfOrFloat));
    Tensor start_pos(start_pos_array, index_input("start_pos"));
    Tensor cache(cache_array, in_place("cache", cache_types(desc.quant_bit)));
    Tensor scale(scale_array, optional_in_place("scale", kHalfOrFloat));
    current_key.require_rank(4, "[B, S, Hk, D]");
    set_sizes(current_key, cache, scale, num_repeat, &desc);
    Plan plan = context.pmx_key_value_cache.find_or_make(context.handle(), desc);

    const int64_t heads = int64_t(desc.num_kv_heads) * desc.num_repeat;
    const int64_t batch = current_key.shape(0), keys = positions(start_pos, cache) + current_key.shape(1);
    nb::object key = new_array(desc.type, {batch, keys, heads, desc.head_dim});
    nb::object value = new_array(desc.type, {batch, keys, heads, desc.head_dim});
    Tensor key_tensor(key, in_place("key", kHalfOrFloat)),
        value_tensor(value, in_place("value", kHalfOrFloat));

    quire_pmx_key_value_cache_args args{};
    args.struct_size = sizeof args;
    args.current_key = current_key;
    args.current_value = current_value;
    args.start_pos = start_pos;
    args.cache = cache;
    args.scale = scale;
    args.key = key_tensor;
    args.value = value_tensor;
    run(context, plan, args, quire_pmx_key_value_cache, quire_prepare_pmx_key_value_cache);
    return nb::make_tuple(key, value);
}

}  // namespace

void bind_pmx_key_value_cache(nb::module_& pmx, nb::module_& dynamic_batching) {
    define(dynamic_batching, "key_value_cache", dynamic_key_value_cache, kDynamicDoc, arg("current_key"),
           arg("current_value"), arg("seqstarts"), arg("kvstarts"), arg("cachestarts"), arg("start_pos"),
           arg("max_seqlen"), arg("max_kvlen"), arg("cache"), arg("scale") = nb::none(), nb::kw_only(),
           arg("num_layer") = 1, arg("layer_idx") = 0, arg("quant_bit") = 0, arg("quant_group") = 8,
           arg("num_repeat") = 1, arg("cache_mode") = 0, arg("cache_layout") = 0, arg("page_size") = 128,
           arg("context") = nb::none());
    define(pmx, "key_value_cache", key_value_cache, kDoc, arg("current_key"), arg("current_value"),
           arg("start_pos"), arg("cache"), arg("scale") = nb::none(), nb::kw_only(), arg("num_layer") = 1,
           arg("layer_idx") = 0, arg("quant_bit") = 0, arg("quant_group") = 8, arg("num_repeat") = 1,
           arg("cache_layout") = 0, arg("context") = nb::none());
}

}  // namespace quire_python
