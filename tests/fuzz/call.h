// One call of an operator: its structs as bytes, and its tensors. Built valid, then perhaps made wrong, then
// placed in memory between guard pages.
#pragma once
#include <string>
#include <vector>

#include "quire/quire.h"
#include "tests/fuzz/memory.h"
#include "tests/fuzz/source.h"

namespace quire::fuzz {

enum class Role { input, written };

struct Argument {
    const char* name;
    size_t offset;  // of the pointer in the arguments or the descriptor
    bool in_desc;
    Role role;
    quire_tensor view, intended;  // as passed, and as it was before a mistake was made
    std::vector<int64_t> values;  // of a tensor of integers
    bool given = true, unaligned = false, null_data = false;
    bool alone = false;  // has lengths that may be no other tensor's: more than there is would be read
};

// An operator's functions, on structs of its own.
struct Functions {
    const char* name;
    quire_status (*plan)(quire_context*, const void* desc, quire_plan**);
    quire_status (*run)(const quire_plan*, const void* args);
    quire_status (*prepare)(const quire_plan*, const void* args, quire_run**);  // null: cannot be
};

struct Call {
    Functions functions;
    std::vector<uint8_t> desc, args;  // struct_size first
    size_t desc_size, args_size;      // of the structs, where a mistake made the bytes fewer or more
    std::vector<Argument> arguments;
    std::vector<size_t> scalars;        // offsets of int64_t fields of the arguments
    std::vector<std::string> mistakes;  // what is no longer as a valid call has it
    bool null_plan = false, null_desc = false, null_args = false;
};

// Builds a Call from typed structs; `args` may move only after finish().
template <typename Desc, typename Args>
class Builder {
public:
    explicit Builder(void (*init)(Desc*)) {
        init(&desc);
        args.struct_size = sizeof args;
    }
    Desc desc = {};
    Args args = {};

    Argument& add(const char* name, const quire_tensor* const& field, Role role, quire_type type,
                  std::vector<int64_t> shape, std::vector<int64_t> values = {}) {
        return add(name, offset_of(field, args), false, role, type, std::move(shape), std::move(values));
    }
    // The same of a tensor that the descriptor points at.
    Argument& add_to_desc(const char* name, const quire_tensor* const& field, quire_type type,
                          std::vector<int64_t> shape) {
        return add(name, offset_of(field, desc), true, Role::input, type, std::move(shape), {});
    }
    void scalar(const int64_t& field) { call_.scalars.push_back(offset_of(field, args)); }

    Call finish(const Functions& functions) {
        const auto bytes = [](const auto& s) {
            const uint8_t* begin = reinterpret_cast<const uint8_t*>(&s);
            return std::vector<uint8_t>(begin, begin + sizeof s);
        };
        call_.functions = functions;
        call_.desc = bytes(desc);
        call_.args = bytes(args);
        call_.desc_size = call_.desc.size();
        call_.args_size = call_.args.size();
        for (Argument& a : call_.arguments) a.intended = a.view;
        return std::move(call_);
    }

private:
    Argument& add(const char* name, size_t offset, bool in_desc, Role role, quire_type type,
                  std::vector<int64_t> shape, std::vector<int64_t> values) {
        Argument a{};
        a.name = name;
        a.offset = offset;
        a.in_desc = in_desc;
        a.role = role;
        a.view = quire_tensor_of(nullptr, type, int32_t(shape.size()), shape.data());
        a.values = std::move(values);
        call_.arguments.push_back(a);
        return call_.arguments.back();
    }
    template <typename Field, typename Struct>
    static size_t offset_of(const Field& field, const Struct& in) {
        return size_t(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&in));
    }
    Call call_ = {};
};

// Adds the tensor `member` of the arguments, under its own name.
#define QUIRE_FUZZ_ADD(builder, member, ...) (builder).add(#member, (builder).args.member, __VA_ARGS__)

#define QUIRE_FUZZ_FUNCTIONS(op)                                                                    \
    Functions {                                                                                     \
#op,                                                                                              \
            [](quire_context* c, const void* d, quire_plan** p) {                                         \
                return quire_##op##_plan(c, static_cast<const quire_##op##_desc*>(d), p);                 \
            },                                                                                            \
            [](const quire_plan* p, const void* a) {                                                      \
                return quire_##op(p, static_cast<const quire_##op##_args*>(a));                           \
            },                                                                                            \
            [](const quire_plan* p, const void* a, quire_run** r) {                                       \
                return quire_prepare_##op(p, static_cast<const quire_##op##_args*>(a), r);                \
            } \
    }

// ---- valid calls: operators_*.cc ----

Call make_attention(Source& source);
Call make_append(Source& source);
Call make_rotate(Source& source);
Call make_merge_states(Source& source);
Call make_pmx_dynamic_multi_head_cache_attention(Source& source);
Call make_pmx_dynamic_multi_head_attention(Source& source);
Call make_pmx_dynamic_key_value_cache(Source& source);
Call make_pmx_multi_head_cache_attention(Source& source);
Call make_pmx_multi_head_attention(Source& source);
Call make_pmx_key_value_cache(Source& source);
Call make_directml_multihead_attention1(Source& source);
Call make_mindspore_multi_head_attention(Source& source);

// ---- mutate.cc ----

// Gaps between rows, and odd addresses: what every operator takes. No mistakes.
void vary_views(Source& source, Call* call);
// A mistake or a few; some are none (a type changed into itself, a shorter struct of an older program).
void make_mistakes(Source& source, Call* call);

// ---- place.cc ----

// A call in memory. Piece 0 is the descriptor, 1 the arguments, 2 the tensor views, 3 + i argument i.
struct Placed {
    const void *desc, *args;
    // Bytes of each piece that a successful call may change.
    std::vector<std::vector<uint8_t>> may_change;
};

// False where a tensor is larger than the memory for it.
bool place(const Call& call, Source& source, Memory* memory, Placed* placed);
// Bytes before and past the element that `data` points at; false where they don't fit in 63 bits.
bool extent(const quire_tensor& view, int64_t* before, int64_t* past);

std::string describe(const Call& call);

}  // namespace quire::fuzz
