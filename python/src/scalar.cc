#include "python/src/scalar.h"

#include <string>

#include "python/src/error.h"

namespace quire_python {

namespace {

// "name is 'x' (str): must be ...". Drops the pending Python error, which has not the argument's name.
[[noreturn]] void fail_conversion(nb::handle object, const char* name, const char* wanted) {
    PyErr_Clear();
    fail(name, std::string("is ") + nb::repr(object).c_str() + " (" + Py_TYPE(object.ptr())->tp_name +
                   "): must be " + wanted);
}

}  // namespace

int64_t to_int64(nb::handle object, const char* name) {
    // __index__ and not int(): 2.7 as a count is a mistake. 0-d integer arrays have it.
    nb::object index = nb::steal(PyNumber_Index(object.ptr()));
    if (!index.is_valid()) fail_conversion(object, name, "an integer");
    const long long value = PyLong_AsLongLong(index.ptr());
    if (value == -1 && PyErr_Occurred()) fail_conversion(object, name, "an integer of 64 bits");
    return value;
}

int32_t to_int32(int64_t value, const char* name) {
    if (value < INT32_MIN || value > INT32_MAX)
        fail(name, "is " + std::to_string(value) + ": must fit 32 bits");
    return static_cast<int32_t>(value);
}

int32_t to_int32(nb::handle object, const char* name) { return to_int32(to_int64(object, name), name); }

float to_float(nb::handle object, const char* name) {
    const double value = PyFloat_AsDouble(object.ptr());
    if (value == -1.0 && PyErr_Occurred()) fail_conversion(object, name, "a number");
    return static_cast<float>(value);
}

bool to_bool(nb::handle object, const char* name) {
    if (object.ptr() == Py_True) return true;
    if (object.ptr() == Py_False) return false;
    // Numbers and 0-d arrays; not None, and not strings, whose truth is their length.
    if (object.is_none() || !PyNumber_Check(object.ptr())) fail_conversion(object, name, "a bool");
    const int truth = PyObject_IsTrue(object.ptr());
    if (truth < 0) fail_conversion(object, name, "a bool");
    return truth != 0;
}

float to_softmax_scale(nb::handle object, const char* name) {
    if (object.is_none()) return 0;
    const float scale = to_float(object, name);
    if (scale == 0) fail(name, "is 0: must not be 0 (None is 1 / sqrt(head size))");
    return scale;
}

quire_precision to_precision(nb::handle object) {
    const char* name = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8(object.ptr()) : nullptr;
    const std::string precision = name ? name : "";
    if (precision == "highest") return QUIRE_PRECISION_HIGHEST;
    if (precision == "high") return QUIRE_PRECISION_HIGH;
    if (precision == "medium") return QUIRE_PRECISION_MEDIUM;
    fail_conversion(object, "precision", "'highest', 'high' or 'medium'");
}

}  // namespace quire_python
