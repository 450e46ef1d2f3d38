// Memory of quire_cache_alloc as an array of bytes, which quire.cache_alloc gives shape and type.
#include <nanobind/ndarray.h>

#include <memory>

#include "python/src/error.h"
#include "python/src/operators.h"
#include "python/src/scalar.h"

namespace quire_python {

namespace {

struct Memory {
    void* data = nullptr;
    size_t bytes = 0;
    ~Memory() { static_cast<void>(quire_cache_free(data, bytes)); }
};

// Freed when the last array over it is.
nb::object cache_memory(size_t bytes) {
    auto memory = std::make_unique<Memory>();
    check(quire_cache_alloc(bytes, &memory->data));
    memory->bytes = bytes;
    void* const data = memory->data;
    nb::capsule owner(memory.get(), [](void* p) noexcept { delete static_cast<Memory*>(p); });
    static_cast<void>(memory.release());
    return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {bytes}, owner));
}

}  // namespace

void bind_cache_memory(nb::module_& module) { module.def("_cache_memory", cache_memory, nb::arg("bytes")); }

}  // namespace quire_python
