// Names of workloads.
#include "bench/workload.h"

namespace bench {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

std::string lengths_of(const Workload& w) {
    std::string text = w.batch == 1 ? "" : number(w.batch) + "x";
    if (w.is_append)
        return text + number(w.query_len) + (w.kv_len == Workload().kv_len ? "" : "of" + number(w.kv_len));
    if (w.is_decode())
        return text + "kv" + number(w.kv_len) + (w.query_len == 1 ? "" : "/q" + number(w.query_len));
    if (w.kv_len == w.query_len) return text + number(w.query_len) + "x" + number(w.kv_len);
    return text + number(w.query_len) + "on" + number(w.kv_len - w.query_len);
}

// "h32-8-128"; values of another size: "h16-1-576-512", with a v where they are a view of the keys.
std::string heads_of(const Workload& w) {
    std::string text = "/h" + number(w.heads) + "-" + number(w.kv_heads) + "-" + number(w.head_dim);
    if (w.dim_of_values() != w.head_dim) text += "-" + number(w.dim_of_values());
    return text + (w.value_view ? "v" : "");
}

}  // namespace

std::string Workload::cache_name() const {
    std::string name = type_name(cache.type);
    if (has_groups()) name += "_g" + number(cache.quant_group);
    if (is_quantised() && cache.scale_type == QUIRE_F32) name += "_f32";
    return name;
}

// What is not as in the usual workload is spelled behind the lengths.
std::string Workload::name() const {
    const Workload usual;
    std::string text = is_append ? "append/" : is_decode() ? "decode/" : "prefill/";
    text += cache_name() + "/" + lengths_of(*this);
    if (ragged) text += "/ragged";
    const std::string heads_text = heads_of(*this);
    if (heads_text != heads_of(usual)) text += heads_text;
    if (window) text += "/w" + number(window);
    if (mask != Mask::none) text += std::string("/mask_") + mask_name(mask);
    if (has_mask() && mask_type != usual.mask_type) text += std::string("_") + type_name(mask_type);
    if (layout != usual.layout) text += "/l" + number(layout);
    if (layout < 3 && gap) text += "/gap" + number(gap);
    if (page_size != usual.page_size) text += "/p" + number(page_size);
    if (type != usual.type) text += std::string("/") + type_name(type);
    if (precision != usual.precision) text += "/" + precision_name(precision);
    if (!target.empty()) text += "/" + target;
    text += "/t" + number(threads);
    return is_decode() && warm ? text + "/warm" : text;
}

}  // namespace bench
