// quire_dump: bytes and annotated listings of the kernels that a plan would have, for any target. Nothing
// that is generated is run. `./dev dump` calls it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "jit/listing.h"
#include "src/plan.h"

namespace quire {
namespace {

constexpr char kUsage[] =
    "quire_dump [OPTION...]: writes NAME.lst and NAME.bin for every kernel of a plan\n"
    "  --out DIR            an existing directory (.)\n"
    "  --target NAME        avx2, avx2_vnni, avx512, avx512_vnni, avx512_vnni_vbmi,\n"
    "                       avx512_vnni_bf16, avx512_vnni_bf16_amx (avx2)\n"
    "  --heads N            query heads (32)       --kv-heads N         (8)\n"
    "  --head-dim N         (128)                  --value-head-dim N   (that of --head-dim)\n"
    "  --cache TYPE         f32, f16, bf16, int8, int4, q8_0 or another type of block (int8)\n"
    "  --page-size N        tokens of a page of the cache (without: no pages)\n"
    "  --group N            values that share a scale (32; of int8 and int4)\n"
    "  --scale-type TYPE    f32, f16 (f16)\n"
    "  --type TYPE          of query, output and new keys: f32, f16, bf16 (f32)\n"
    "  --precision NAME     highest, high, medium (highest)\n"
    "  --alibi              --soft-cap\n"
    "  --only TEXT          kernels whose names contain it\n"
    "  --print              to standard output too\n";

struct Options {
    std::string out = ".", target = "avx2", cache = "int8", scale_type = "f16", type = "f32",
                precision = "highest", only;
    int heads = 32, kv_heads = 8, head_dim = 128, value_head_dim = 0, group = 32, page_size = 0;
    bool alibi = false, soft_cap = false, print = false;
};

Status parse_number(const char* name, const char* text, int* number) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < 1 || value > 1024)
        return invalid("%s is \"%s\": must be 1 to 1024", name, text);
    *number = int(value);
    return {};
}

Status parse(int count, char** arguments, Options* o) {
    struct {
        const char* name;
        std::string* text;
        int* number;
        bool* flag;
    } const table[] = {
        {"--out", &o->out, nullptr, nullptr},
        {"--target", &o->target, nullptr, nullptr},
        {"--cache", &o->cache, nullptr, nullptr},
        {"--scale-type", &o->scale_type, nullptr, nullptr},
        {"--type", &o->type, nullptr, nullptr},
        {"--precision", &o->precision, nullptr, nullptr},
        {"--only", &o->only, nullptr, nullptr},
        {"--heads", nullptr, &o->heads, nullptr},
        {"--kv-heads", nullptr, &o->kv_heads, nullptr},
        {"--head-dim", nullptr, &o->head_dim, nullptr},
        {"--value-head-dim", nullptr, &o->value_head_dim, nullptr},
        {"--page-size", nullptr, &o->page_size, nullptr},
        {"--group", nullptr, &o->group, nullptr},
        {"--alibi", nullptr, nullptr, &o->alibi},
        {"--soft-cap", nullptr, nullptr, &o->soft_cap},
        {"--print", nullptr, nullptr, &o->print},
    };
    for (int i = 0; i < count; ++i) {
        bool known = false;
        for (const auto& row : table) {
            if (std::strcmp(arguments[i], row.name) != 0) continue;
            known = true;
            if (row.flag) {
                *row.flag = true;
                continue;
            }
            if (++i == count) return invalid("%s must be followed by a value", row.name);
            if (row.text) *row.text = arguments[i];
            if (row.number) QUIRE_TRY(parse_number(row.name, arguments[i], row.number));
            break;
        }
        if (!known) return invalid("%s: must be one of the options of --help", arguments[i]);
    }
    return {};
}

Status parse_type(const char* name, const std::string& text, quire_type* type) {
    std::string names;
    size_t count = 0;
    const FormatInfo* table = format_table(&count);
    for (size_t i = 0; i < count; ++i) {
        if (text == table[i].name) return *type = table[i].type, Status();
        names += (i ? ", " : "") + std::string(table[i].name);
    }
    return invalid("%s is \"%s\": must be one of %s", name, text.c_str(), names.c_str());
}

Status parse_precision(const std::string& text, quire_precision* precision) {
    if (text != "highest" && text != "high" && text != "medium")
        return invalid("--precision is \"%s\": must be one of highest, high, medium", text.c_str());
    *precision = text == "highest" ? QUIRE_PRECISION_HIGHEST
                 : text == "high"  ? QUIRE_PRECISION_HIGH
                                   : QUIRE_PRECISION_MEDIUM;
    return {};
}

Status make_spec(const Options& o, AttentionSpec* attention, AppendSpec* append) {
    quire_format format = {QUIRE_NONE, 0, QUIRE_NONE};
    quire_type type = QUIRE_NONE;
    QUIRE_TRY(parse_type("--cache", o.cache, &format.type));
    QUIRE_TRY(parse_type("--type", o.type, &type));
    if (is_quantised(format) || token_block_info(format.type)) {
        format.quant_group = o.group;
        QUIRE_TRY(parse_type("--scale-type", o.scale_type, &format.scale_type));
    }
    quire_attention_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.num_heads = o.heads;
    desc.num_kv_heads = o.kv_heads;
    desc.head_dim = o.head_dim;
    desc.value_head_dim = o.value_head_dim;
    desc.page_size = o.page_size;
    desc.type = type;
    desc.key_format = desc.value_format = format;
    QUIRE_TRY(parse_precision(o.precision, &desc.precision));
    desc.is_alibi = o.alibi;
    desc.logits_soft_cap = o.soft_cap ? 30.f : 0.f;
    QUIRE_TRY(check_attention_desc(desc, attention));
    static_cast<CacheSpec&>(*append) = *attention;
    append->type = type;
    return {};
}

Status dump(const Options& o) {
    const Target* target = find_target(o.target);
    if (target == nullptr || !target->jit())
        return invalid("--target is \"%s\": must be a target that code is generated for, see --help",
                       o.target.c_str());
    AttentionSpec attention = {};
    AppendSpec append = {};
    QUIRE_TRY(make_spec(o, &attention, &append));
    Status status;
    int written = 0;
    const auto watch = [&](const std::shared_ptr<const jit::Code>& code, const jit::Notes& notes) {
        if (!status.ok() || code->name.find(o.only) == std::string::npos) return;
        status = jit::write_listing(o.out, *code, notes);
        ++written;
        const auto* bytes = static_cast<const uint8_t*>(code->memory.entry());
        if (o.print) std::puts(jit::listing(code->name, bytes, code->code_size, notes).c_str());
    };
    jit::CodeCache cache(size_t(1) << 30, watch);
    std::string notes;
    AttentionPlan attention_plan;
    AppendPlan append_plan;
    QUIRE_TRY(make_attention_plan(attention, *target, cache, &attention_plan, &notes));
    QUIRE_TRY(make_append_plan("append", append, *target, cache, &append_plan, &notes));
    QUIRE_TRY(status);
    if (attention_plan.target != target || append_plan.target != target)
        return unsupported("%s declined:\n%s", target->name, notes.c_str());
    if (written == 0) return invalid("--only is \"%s\": no kernel's name contains it", o.only.c_str());
    std::printf("quire_dump: %d kernels of %s in %s\n", written, target->name, o.out.c_str());
    return {};
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) {
    using namespace quire;
    if (count > 1 && std::strcmp(arguments[1], "--help") == 0) return std::fputs(kUsage, stdout) < 0;
    Options options;
    Status status = parse(count - 1, arguments + 1, &options);
    if (status.ok()) status = dump(options);
    if (!status.ok()) std::fprintf(stderr, "quire_dump: %s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
}
