#include "python/src/output.h"

namespace quire_python {

namespace {

// Looked up once and never released: they live as long as NumPy does. bfloat16 only when it is first needed.
struct NumPy {
    PyObject* empty = nullptr;
    PyObject* float32 = nullptr;
    PyObject* float16 = nullptr;
    PyObject* bfloat16 = nullptr;
};
NumPy numpy;  // guarded by the GIL

PyObject* dtype_of(quire_type type) {
    if (type == QUIRE_F32) return numpy.float32;
    if (type == QUIRE_F16) return numpy.float16;
    if (!numpy.bfloat16)
        numpy.bfloat16 =
            nb::object(nb::module_::import_("quire._convert").attr("bfloat16_dtype")()).release().ptr();
    return numpy.bfloat16;
}

}  // namespace

void import_numpy() {
    nb::module_ module = nb::module_::import_("numpy");
    numpy.empty = nb::object(module.attr("empty")).release().ptr();
    numpy.float32 = nb::object(module.attr("dtype")("float32")).release().ptr();
    numpy.float16 = nb::object(module.attr("dtype")("float16")).release().ptr();
}

nb::object new_array(quire_type type, std::initializer_list<int64_t> shape) {
    nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
    if (!sizes.is_valid()) nb::raise_python_error();
    Py_ssize_t i = 0;
    for (int64_t size : shape) PyTuple_SET_ITEM(sizes.ptr(), i++, PyLong_FromLongLong(size));
    PyObject* arguments[] = {nullptr, sizes.ptr(), dtype_of(type)};
    PyObject* array =
        PyObject_Vectorcall(numpy.empty, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (!array) nb::raise_python_error();
    return nb::steal(array);
}

}  // namespace quire_python
