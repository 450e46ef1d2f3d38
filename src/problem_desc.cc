// Descriptors of the general operators: checked, and brought into the form that plans keep.
#include <cmath>

#include "src/problem.h"

namespace quire {

namespace {

Status check_token_blocks(const char* name, const quire_format& format, int dim) {
    if (format.quant_group < 8 || format.quant_group % 8 != 0 || dim % format.quant_group != 0)
        return invalid("%s.quant_group is %d: must be a multiple of 8 that divides the head size, %d, for %s",
                       name, format.quant_group, dim, type_name(format.type));
    if (format.scale_type != QUIRE_F16)
        return invalid("%s.scale_type is %s: must be f16 for %s", name, type_text(format.scale_type).c_str(),
                       type_name(format.type));
    return {};
}

}  // namespace

Status check_format(const char* name, const quire_format& format, int dim) {
    const FormatInfo* info = format_info(format.type);
    if (info == nullptr)
        return invalid("%s.type is %s: must be %s", name, type_text(format.type).c_str(),
                       format_names().c_str());
    const int whole = type_size(format.type).elements;
    if (dim % whole != 0)
        return invalid("%s.type is %s: needs a head size that is a multiple of %d, got %d", name, info->name,
                       whole, dim);
    if (token_block_info(format.type)) return check_token_blocks(name, format, dim);
    if (info->max_code == 0) return {};
    if (format.quant_group < 1 || dim % format.quant_group != 0)
        return invalid("%s.quant_group is %d: must divide the head size, %d", name, format.quant_group, dim);
    if (format.scale_type != QUIRE_F32 && format.scale_type != QUIRE_F16)
        return invalid("%s.scale_type is %s: must be f32 or f16", name, type_text(format.scale_type).c_str());
    return {};
}

namespace {

Status check_activation_type(const char* name, quire_type type) {
    if (type == QUIRE_F32 || type == QUIRE_F16 || type == QUIRE_BF16) return {};
    return invalid("%s is %s: must be f32, f16 or bf16", name, type_text(type).c_str());
}

// Fields that do not count are zero, so that equal formats compare equal.
quire_format plain(const quire_format& format) {
    return is_quantised(format) || token_block_info(format.type) ? format
                                                                 : quire_format{format.type, 0, QUIRE_NONE};
}

Status check_appendable(const char* name, const quire_format& format) {
    if (block_info(format.type) == nullptr) return {};
    return Status(QUIRE_UNSUPPORTED,
                  std::string(name) + ".type is " + type_name(format.type) +
                      ": blocks are read by attention only, quire_append does not store them");
}

Status check_heads(int num_heads, int num_kv_heads, int* Hk) {
    QUIRE_TRY(check_range("num_heads", num_heads, 1, 1 << 20));
    QUIRE_TRY(check_range("num_kv_heads", num_kv_heads, 0, 1 << 20));
    *Hk = num_kv_heads == 0 ? num_heads : num_kv_heads;
    if (num_heads % *Hk != 0) return invalid("num_kv_heads is %d: must divide num_heads, %d", *Hk, num_heads);
    return {};
}

Status check_head_dims(int head_dim, int value_head_dim, int* Dv) {
    QUIRE_TRY(check_range("head_dim", head_dim, 1, kMostHeadDim));
    QUIRE_TRY(check_range("value_head_dim", value_head_dim, 0, kMostHeadDim));
    *Dv = value_head_dim == 0 ? head_dim : value_head_dim;
    return {};
}

Status check_page_size(int64_t page_size, const CacheSpec& spec) {
    QUIRE_TRY(check_range("page_size", page_size, 0, int64_t(1) << 30));
    for (const quire_format& format : {spec.key_format, spec.value_format})
        if (page_size % tokens_of_block(format) != 0)
            return invalid("page_size is %lld: must be a multiple of %d for %s", (long long)page_size,
                           kBlockTokens, type_name(format.type));
    return {};
}

// What the descriptors of attention and append share; the value's head size is known.
template <typename Desc, typename Spec>
Status check_types(const Desc& desc, Spec* s) {
    s->D = desc.head_dim;
    QUIRE_TRY(check_activation_type("type", desc.type));
    s->type = desc.type;
    QUIRE_TRY(check_format("key_format", desc.key_format, s->D));
    return check_format("value_format", desc.value_format, s->Dv);
}

}  // namespace

Status check_attention_desc(const quire_attention_desc& desc, AttentionSpec* spec) {
    AttentionSpec s{};
    QUIRE_TRY(check_heads(desc.num_heads, desc.num_kv_heads, &s.Hk));
    QUIRE_TRY(check_head_dims(desc.head_dim, desc.value_head_dim, &s.Dv));
    s.H = desc.num_heads;
    QUIRE_TRY(check_types(desc, &s));
    s.key_format = plain(desc.key_format);
    s.value_format = plain(desc.value_format);
    if (!std::isfinite(desc.scale)) return invalid("scale is %g: must be finite", double(desc.scale));
    s.scale = desc.scale == 0 ? float(1.0 / std::sqrt(double(s.D))) : desc.scale;
    s.causal = desc.is_causal != 0;
    QUIRE_TRY(check_range("causal_corner", desc.causal_corner, 0, 1));
    s.top_left = desc.causal_corner == 1;
    s.alibi = desc.is_alibi != 0;
    s.window_left = desc.has_window ? desc.window_left : -1;
    s.window_right = desc.has_window ? desc.window_right : -1;
    if (!(desc.logits_soft_cap >= 0) || std::isinf(desc.logits_soft_cap))
        return invalid("logits_soft_cap is %g: must be finite and >= 0", double(desc.logits_soft_cap));
    s.soft_cap = desc.logits_soft_cap;
    QUIRE_TRY(check_page_size(desc.page_size, s));
    s.page_size = desc.page_size;
    QUIRE_TRY(check_range("precision", desc.precision, QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_MEDIUM));
    s.precision = desc.precision;
    *spec = s;
    return {};
}

namespace {

Status check_rotation(quire_rotary rotary, int rotary_dim, int dim, Rotation* rotation) {
    QUIRE_TRY(check_range("rotary", rotary, QUIRE_ROTARY_NONE, QUIRE_ROTARY_INTERLEAVED));
    if (rotary == QUIRE_ROTARY_NONE) {
        if (rotary_dim != 0)
            return invalid("rotary_dim is %d: must be 0 without a rotary embedding", rotary_dim);
        return {};
    }
    const int R = rotary_dim == 0 ? dim : rotary_dim;
    if (R < 2 || R > dim || R % 2 != 0)
        return invalid("rotary_dim is %d: must be even, 2 to head_dim, %d", R, dim);
    rotation->rotary = rotary;
    rotation->rotary_dim = R;
    return {};
}

Status check_hadamard(const char* name, int32_t wanted, const char* dim_name, int dim, Rotation* rotation) {
    QUIRE_TRY(check_range(name, wanted, 0, 1));
    if (wanted == 0) return {};
    if (dim % 2 != 0) return invalid("%s is %d: must be even with %s", dim_name, dim, name);
    rotation->block = hadamard_block(dim);
    return {};
}

}  // namespace

Status check_rotate_desc(const quire_rotate_desc& desc, AppendSpec* spec) {
    AppendSpec s{};
    QUIRE_TRY(check_range("num_heads", desc.num_heads, 1, 1 << 20));
    s.Hk = desc.num_heads;
    QUIRE_TRY(check_head_dims(desc.head_dim, 0, &s.Dv));
    s.D = desc.head_dim;
    s.Dv = 0;
    QUIRE_TRY(check_activation_type("type", desc.type));
    s.type = desc.type;
    s.key_format = s.value_format = {desc.type, 0, QUIRE_NONE};
    QUIRE_TRY(check_rotation(desc.rotary, desc.rotary_dim, s.D, &s.key_rotation));
    QUIRE_TRY(check_hadamard("hadamard", desc.hadamard, "head_dim", s.D, &s.key_rotation));
    if (!s.key_rotation) return invalid("rotary and hadamard are 0: must ask for a rotation");
    *spec = s;
    return {};
}

Status check_append_desc(const quire_append_desc& desc, AppendSpec* spec) {
    AppendSpec s{};
    QUIRE_TRY(check_range("num_kv_heads", desc.num_kv_heads, 1, 1 << 20));
    s.Hk = desc.num_kv_heads;
    QUIRE_TRY(check_head_dims(desc.head_dim, desc.value_head_dim, &s.Dv));
    QUIRE_TRY(check_types(desc, &s));
    QUIRE_TRY(check_appendable("key_format", desc.key_format));
    QUIRE_TRY(check_appendable("value_format", desc.value_format));
    s.key_format = plain(desc.key_format);
    s.value_format = plain(desc.value_format);
    QUIRE_TRY(check_page_size(desc.page_size, s));
    s.page_size = desc.page_size;
    QUIRE_TRY(check_rotation(desc.rotary, desc.rotary_dim, s.D, &s.key_rotation));
    QUIRE_TRY(check_hadamard("hadamard_keys", desc.hadamard_keys, "head_dim", s.D, &s.key_rotation));
    QUIRE_TRY(
        check_hadamard("hadamard_values", desc.hadamard_values, "value_head_dim", s.Dv, &s.value_rotation));
    *spec = s;
    return {};
}

std::vector<float> alibi_slopes(int H) {
    int power = 1;
    while (power * 2 <= H) power *= 2;
    std::vector<float> slopes;
    for (int k = 1; k <= power; ++k) slopes.push_back(float(std::exp2(-8.0 * k / power)));
    for (int k = 1; int(slopes.size()) < H; k += 2) slopes.push_back(float(std::exp2(-4.0 * k / power)));
    return slopes;
}

}  // namespace quire
