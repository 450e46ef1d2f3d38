// Python arrays as quire_tensor views, without a copy.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>

#include "quire/quire.h"

namespace quire_python {

namespace nb = nanobind;

// A set of quire_type values.
using TypeSet = unsigned;
constexpr TypeSet bit(quire_type type) { return 1u << type; }
constexpr TypeSet kActivations = bit(QUIRE_F32) | bit(QUIRE_F16) | bit(QUIRE_BF16);
constexpr TypeSet kRows = kActivations | bit(QUIRE_INT8) | bit(QUIRE_INT4);
constexpr TypeSet kHalfOrFloat = bit(QUIRE_F32) | bit(QUIRE_F16);

// NumPy's name of a type: "float32"; "uint8" for packed int4.
const char* type_name(quire_type type);

// What an argument must be.
struct Role {
    const char* name;  // in Python
    TypeSet types;
    bool writable = false;  // changed in place: a read-only array is an error
    bool optional = false;  // None is fine
    // What other types, and lists, are converted to (small read-only arguments: indices, sinks); null: an
    // error. A function of quire._convert.
    const char* converter = nullptr;
};

inline Role input(const char* name, TypeSet types) { return {name, types}; }
inline Role optional_input(const char* name, TypeSet types) { return {name, types, false, true}; }
inline Role in_place(const char* name, TypeSet types) { return {name, types, true}; }
inline Role optional_in_place(const char* name, TypeSet types) { return {name, types, true, true}; }
inline Role index_input(const char* name) { return {name, bit(QUIRE_INT64), false, false, "to_int64"}; }
inline Role optional_index_input(const char* name) {
    return {name, bit(QUIRE_INT64), false, true, "to_int64"};
}
inline Role sinks_input() { return {"sinks", bit(QUIRE_F32), false, true, "to_float32"}; }

// A view of a Python array: NumPy (or anything with the buffer protocol), else DLPack on the CPU. Keeps the
// array alive and its memory in place until it is destroyed, which needs the GIL. uint8 is packed int4: the
// view then counts values, two a byte; or, where an argument says so, blocks.
class Tensor {
public:
    Tensor(nb::handle object, const Role& role);  // throws Error
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;

    // What the C API takes: null where the argument is None.
    const quire_tensor* get() const { return given_ ? &view_ : nullptr; }
    operator const quire_tensor*() const { return get(); }

    quire_type type() const { return given_ ? view_.type : QUIRE_NONE; }
    int32_t rank() const { return view_.rank; }
    int64_t shape(int dimension) const { return view_.shape[dimension]; }
    int64_t stride(int dimension) const { return view_.strides[dimension]; }  // in elements
    const void* data() const { return view_.data; }
    int64_t last_dimension() const { return view_.shape[view_.rank - 1]; }

    // Takes the bytes of a uint8 array for rows of blocks. Throws unless they are whole ones. `name` of the
    // type.
    void take_as_blocks(quire_type type, const char* name);

    // The same of blocks of tokens, whose elements are bytes.
    void take_as_token_blocks(quire_type type, const char* name);

    // Throws unless there are `rank` dimensions; `letters` tells the shape that is wanted: "[n, H, D]".
    void require_rank(int32_t rank, const char* letters) const;

private:
    struct Buffer {  // of the buffer protocol
        Py_buffer view;
        bool held = false;
        ~Buffer() { release(); }
        void release();
    };

    bool import(nb::handle object, const Role& role);
    // `type`: of the elements, where the buffer's own format does not tell.
    bool import_buffer(nb::handle object, const Role& role, quire_type type = QUIRE_NONE);
    bool import_bfloat16_array(nb::handle object, const Role& role);
    template <typename Array>
    bool import_dlpack(nb::handle object, const Role& role);
    void set_type(quire_type type, int64_t rank, const Role& role);
    void set_dimension(int dimension, int64_t length, int64_t stride, const Role& role);

    const char* name_;
    bool given_ = false;
    bool read_only_ = false;
    quire_tensor view_;
    Buffer buffer_;
    nb::ndarray<nb::ro> dlpack_;
};

}  // namespace quire_python
