#include "python/src/tensor.h"

#include "python/src/error.h"

namespace quire_python {

namespace {

struct TypeRow {
    quire_type type;
    const char* name;
    char format;  // of the struct module, as the buffer protocol has it; 0: none
    nb::dlpack::dtype_code code;
    uint8_t bits;
};

// int64 is 'l' on Linux; 'q' and 'l' are told apart by their size below. uint8 is how packed int4 comes.
constexpr TypeRow kTypes[] = {
    {QUIRE_F32, "float32", 'f', nb::dlpack::dtype_code::Float, 32},
    {QUIRE_F16, "float16", 'e', nb::dlpack::dtype_code::Float, 16},
    {QUIRE_BF16, "bfloat16", 0, nb::dlpack::dtype_code::Bfloat, 16},
    {QUIRE_INT8, "int8", 'b', nb::dlpack::dtype_code::Int, 8},
    {QUIRE_INT4, "uint8", 'B', nb::dlpack::dtype_code::UInt, 8},
    {QUIRE_INT64, "int64", 'l', nb::dlpack::dtype_code::Int, 64},
    {QUIRE_INT64, "int64", 'q', nb::dlpack::dtype_code::Int, 64},
    {QUIRE_INT32, "int32", 'i', nb::dlpack::dtype_code::Int, 32},
    {QUIRE_BOOL, "bool", '?', nb::dlpack::dtype_code::Bool, 8},
};

quire_type type_of_format(const char* format, Py_ssize_t item_size) {
    if (!format) format = "B";  // the protocol's default
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    if (format[0] == 0 || format[1] != 0) return QUIRE_NONE;
    for (const TypeRow& row : kTypes)
        if (row.format == format[0] && row.bits == 8 * item_size) return row.type;
    return QUIRE_NONE;
}

quire_type type_of_dlpack(nb::dlpack::dtype dtype) {
    for (const TypeRow& row : kTypes)
        if (static_cast<uint8_t>(row.code) == dtype.code && row.bits == dtype.bits && dtype.lanes == 1)
            return row.type;
    return QUIRE_NONE;
}

// A function of the pure Python module that holds the conversions.
nb::object converter(const char* function) { return nb::module_::import_("quire._convert").attr(function); }

// The dtypes of ml_dtypes.bfloat16 and of its bits, once an array of it was seen. Knowing an array by its
// dtype saves a failing request for its buffer, which takes longer than all else. Guarded by the GIL; never
// released.
PyObject* bfloat16_dtype = nullptr;
PyObject* bits_dtype = nullptr;

bool is_known_bfloat16(nb::handle object) {
    return bfloat16_dtype && nb::getattr(object, "dtype", nb::none()).is(bfloat16_dtype);
}

// For messages: what the caller gave.
std::string described(nb::handle object) {
    nb::object dtype = nb::getattr(object, "dtype", nb::none());
    if (dtype.is_none()) return std::string("is of class ") + Py_TYPE(object.ptr())->tp_name;
    return std::string("has type ") + nb::str(dtype).c_str();
}

std::string listed(TypeSet types) {
    std::string list;
    TypeSet seen = 0;
    for (const TypeRow& row : kTypes) {
        if (!(types & ~seen & bit(row.type))) continue;
        seen |= bit(row.type);
        list += (list.empty()      ? ""
                 : (types & ~seen) ? ", "
                                   : " or ") +
                std::string(row.name) + (row.type == QUIRE_INT4 ? " (packed int4)" : "");
    }
    return list;
}

// DLPack's kDLCPU; objects without __dlpack_device__ count as being there.
bool on_cpu(nb::handle object) {
    try {
        nb::object device = nb::getattr(object, "__dlpack_device__", nb::none());
        return device.is_none() || nb::cast<int>(nb::object(device())[0]) == 1;
    } catch (const std::exception&) {
        return true;
    }
}

// Why an object that offers DLPack was not imported, in the producer's words; empty where it does not say.
std::string dlpack_error(nb::handle object) {
    if (!nb::hasattr(object, "__dlpack__")) return "";
    try {
        object.attr("__dlpack__")();
        return "";
    } catch (nb::python_error& error) {
        return nb::str(error.value()).c_str();
    }
}

}  // namespace

const char* type_name(quire_type type) {
    for (const TypeRow& row : kTypes)
        if (row.type == type) return row.name;
    return "none";
}

void Tensor::Buffer::release() {
    if (held) PyBuffer_Release(&view);
    held = false;
}

Tensor::Tensor(nb::handle object, const Role& role) : name_(role.name) {
    if (object.is_none()) {
        if (!role.optional) fail(role.name, "is None: must be an array");
        return;
    }
    given_ = true;
    bool imported = import(object, role);
    if (role.converter && (!imported || !(role.types & bit(view_.type)))) {
        // Lists and other integers. The copy lives as long as the view of it.
        buffer_.release();
        imported = import(converter(role.converter)(object, role.name), role);
    }
    if (!imported) {
        if (!on_cpu(object)) fail(role.name, "is not on the CPU");
        const std::string reason = dlpack_error(object);
        if (!reason.empty()) fail(role.name, "cannot be read through DLPack: " + reason);
        fail(role.name, described(object) + ": must be an array of NumPy or with __dlpack__, of type " +
                            listed(role.types));
    }
    if (!(role.types & bit(view_.type)))
        fail(role.name, described(object) + ": must be " + listed(role.types));
    if (role.writable && read_only_) fail(role.name, "is read-only: it is changed in place");
}

void Tensor::require_rank(int32_t rank, const char* letters) const {
    if (view_.rank != rank)
        fail(name_, "has " + std::to_string(view_.rank) + " dimensions: must be " + letters);
}

void Tensor::take_as_blocks(quire_type type, const char* name) {
    if (view_.type != QUIRE_INT4)
        fail(name_,
             std::string("has type ") + type_name(view_.type) + ": must be uint8, the bytes of " + name);
    constexpr int64_t kValues = 32;
    const int64_t block = quire_bytes_of(type, kValues);
    const auto blocks_of = [&](int64_t nibbles, const std::string& what) {
        if (nibbles / 2 % block != 0)
            fail(name_, "has " + what + " " + std::to_string(nibbles / 2) + ": must be a multiple of " +
                            std::to_string(block) + ", the bytes of a block of " + name);
        return nibbles / 2 / block * kValues;
    };
    const int32_t last = view_.rank - 1;
    view_.shape[last] = blocks_of(view_.shape[last], "a last dimension of");
    for (int32_t i = 0; i < last; ++i)
        if (view_.shape[i] > 1)
            view_.strides[i] =
                blocks_of(view_.strides[i], "in dimension " + std::to_string(i) + " a stride of");
    view_.type = type;
}

void Tensor::take_as_token_blocks(quire_type type, const char* name) {
    if (view_.type != QUIRE_INT4)
        fail(name_,
             std::string("has type ") + type_name(view_.type) + ": must be uint8, the bytes of " + name);
    const int32_t last = view_.rank - 1;
    view_.shape[last] /= 2;
    for (int32_t i = 0; i < last; ++i) view_.strides[i] /= 2;
    view_.type = type;
}

bool Tensor::import(nb::handle object, const Role& role) {
    if (PyObject_CheckBuffer(object.ptr())) {
        if (!is_known_bfloat16(object) && import_buffer(object, role)) return true;
        if (import_bfloat16_array(object, role)) return true;
    }
    // A read-only producer refuses the first; whether that is an error is decided by the caller.
    return import_dlpack<nb::ndarray<nb::device::cpu>>(object, role) ||
           import_dlpack<nb::ndarray<nb::ro, nb::device::cpu>>(object, role);
}

// NumPy arrays come this way and not through DLPack: it is faster, and read-only arrays are allowed.
bool Tensor::import_buffer(nb::handle object, const Role& role, quire_type type) {
    Py_buffer& view = buffer_.view;
    if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_RECORDS_RO) != 0) {
        PyErr_Clear();
        return false;
    }
    buffer_.held = true;
    read_only_ = view.readonly;
    view_.data = view.buf;
    set_type(type ? type : type_of_format(view.format, view.itemsize), view.ndim, role);
    if (!view_.type) return true;  // refused by its type, whatever its shape
    for (int i = 0; i < view.ndim; ++i) {
        if (view.shape[i] > 1 && view.strides[i] % view.itemsize != 0)
            fail(role.name, "has a stride of " + std::to_string(view.strides[i]) +
                                " bytes: must be a multiple of the " + std::to_string(view.itemsize) +
                                " bytes of an element");
        set_dimension(i, view.shape[i], view.strides[i] / view.itemsize, role);
    }
    return true;
}

// NumPy arrays of ml_dtypes.bfloat16 speak neither protocol; a view of the same memory as int16 does.
bool Tensor::import_bfloat16_array(nb::handle object, const Role& role) {
    nb::object bits = is_known_bfloat16(object) ? object.attr("view")(nb::handle(bits_dtype))
                                                : converter("bfloat16_bits")(object);
    if (bits.is_none() || !import_buffer(bits, role, QUIRE_BF16)) return false;
    if (!bfloat16_dtype) {
        bfloat16_dtype = nb::object(object.attr("dtype")).release().ptr();
        bits_dtype = nb::object(bits.attr("dtype")).release().ptr();
    }
    return true;
}

template <typename Array>
bool Tensor::import_dlpack(nb::handle object, const Role& role) {
    Array array;
    if (!nb::try_cast(object, array, false)) return false;
    // Only a producer of DLPack 1 tells; an older one that gave the array vouches for it.
    read_only_ = Array::ReadOnly;
    view_.data = const_cast<void*>(static_cast<const void*>(array.data()));
    set_type(type_of_dlpack(array.dtype()), static_cast<int64_t>(array.ndim()), role);
    if (!view_.type) return true;
    for (int i = 0; i < view_.rank; ++i)
        set_dimension(i, static_cast<int64_t>(array.shape(i)), array.stride(i), role);
    dlpack_ = nb::ndarray<nb::ro>(array);
    return true;
}

void Tensor::set_type(quire_type type, int64_t rank, const Role& role) {
    if (rank > QUIRE_MAX_RANK)
        fail(role.name, "has " + std::to_string(rank) + " dimensions: must be at most " +
                            std::to_string(QUIRE_MAX_RANK));
    view_.type = type;
    view_.rank = static_cast<int32_t>(rank);
}

// `stride` counts elements of the array, which are pairs of values where it is packed.
void Tensor::set_dimension(int dimension, int64_t length, int64_t stride, const Role& role) {
    const bool packed = view_.type == QUIRE_INT4;
    const bool last = dimension == view_.rank - 1;
    if (packed && last && length > 1 && stride != 1)
        fail(role.name,
             "has a stride of " + std::to_string(stride) + " in its last dimension: packed int4 must have 1");
    view_.shape[dimension] = packed && last ? 2 * length : length;
    view_.strides[dimension] = !packed ? stride : last ? 1 : 2 * stride;
}

}  // namespace quire_python
