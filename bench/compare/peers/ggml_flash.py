"""llama.cpp: ggml_flash_attn_ext through the functions that the wheel of xllamacpp exports."""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np

from . import Prepared

PACKAGE = "xllamacpp"
# name -> ggml_type
TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
VARIANTS = tuple(TYPES)
F32, F16 = 0, 1


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class ThreadpoolParams(ctypes.Structure):
    _fields_ = [
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


POINTER, INT, LONG, SIZE, FLOAT = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_size_t,
    ctypes.c_float,
)
# function -> result, arguments
FUNCTIONS = {
    "ggml_init": (POINTER, [InitParams]),
    "ggml_new_tensor_4d": (POINTER, [POINTER, INT, LONG, LONG, LONG, LONG]),
    "ggml_permute": (POINTER, [POINTER, POINTER, INT, INT, INT, INT]),
    "ggml_flash_attn_ext": (POINTER, [POINTER] * 5 + [FLOAT] * 3),
    "ggml_new_graph": (POINTER, [POINTER]),
    "ggml_build_forward_expand": (None, [POINTER, POINTER]),
    "ggml_get_data": (POINTER, [POINTER]),
    "ggml_nbytes": (SIZE, [POINTER]),
    "ggml_quantize_chunk": (SIZE, [INT, POINTER, POINTER, LONG, LONG, LONG, POINTER]),
    "ggml_backend_cpu_init": (POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [POINTER, INT]),
    "ggml_backend_cpu_set_threadpool": (None, [POINTER, POINTER]),
    "ggml_backend_alloc_ctx_tensors": (POINTER, [POINTER, POINTER]),
    "ggml_backend_graph_compute": (INT, [POINTER, POINTER]),
    "ggml_threadpool_params_default": (ThreadpoolParams, [INT]),
    "ggml_threadpool_new": (POINTER, [ctypes.POINTER(ThreadpoolParams)]),
    "ggml_cpu_has_avx2": (INT, []),
    "ggml_cpu_has_avx512": (INT, []),
}


def library():
    found = importlib.util.find_spec("xllamacpp")
    if found is None:
        raise ModuleNotFoundError("No module named 'xllamacpp'")
    paths = sorted(Path(found.origin).parent.glob("xllamacpp*.so"))
    ggml = ctypes.CDLL(str(paths[0]))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml


def write(ggml, tensor, kind, data):
    """float32 rows of the last dimension into a tensor of another type."""
    to, rows = ggml.ggml_get_data(tensor), data.reshape(-1, data.shape[-1])
    if kind in (F32, F16):
        rows = np.ascontiguousarray(rows, np.float32 if kind == F32 else np.float16)
        ctypes.memmove(to, rows.ctypes.data, rows.nbytes)
    else:
        rows = np.ascontiguousarray(rows)
        ggml.ggml_quantize_chunk(kind, rows.ctypes.data, to, 0, *rows.shape, None)


def visible(shape):
    """The mask that llama.cpp gives: 0 where a query sees a key, else -inf."""
    position = shape.kv_len - shape.query_len + np.arange(shape.query_len)
    return np.where(np.arange(shape.kv_len)[None] > position[:, None], -np.inf, 0).astype(np.float32)


def make(shape, variant, threads, q, k, v):
    ggml, kind = library(), TYPES[variant]
    context = ggml.ggml_init(InitParams(1 << 20, None, True))
    cpu = ggml.ggml_backend_cpu_init()
    pool = ggml.ggml_threadpool_params_default(threads)
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    ggml.ggml_backend_cpu_set_threadpool(cpu, ggml.ggml_threadpool_new(ctypes.byref(pool)))

    # As llama.cpp's cache: [D, Hk, T, B] in ggml's order, seen as [D, T, Hk, B].
    def tensor(of, heads, length):
        made = ggml.ggml_new_tensor_4d(context, of, shape.head_dim, heads, length, shape.batch)
        return made, ggml.ggml_permute(context, made, 0, 2, 1, 3)

    query, query_view = tensor(F32, shape.heads, shape.query_len)
    key, key_view = tensor(kind, shape.kv_heads, shape.kv_len)
    value, value_view = tensor(kind, shape.kv_heads, shape.kv_len)
    mask = ggml.ggml_new_tensor_4d(context, F16, shape.kv_len, shape.query_len, 1, 1)
    out = ggml.ggml_flash_attn_ext(
        context, query_view, key_view, value_view, mask, shape.head_dim**-0.5, 0.0, 0.0
    )
    if not ggml.ggml_backend_alloc_ctx_tensors(context, cpu):
        raise MemoryError("ggml_backend_alloc_ctx_tensors")
    for to, of, data in ((query, F32, q), (key, kind, k), (value, kind, v), (mask, F16, visible(shape))):
        write(ggml, to, of, data)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, out)

    def run():
        if ggml.ggml_backend_graph_compute(cpu, graph) != 0:
            raise RuntimeError("ggml_backend_graph_compute failed")

    def output():
        count = shape.batch * shape.query_len * shape.heads * shape.head_dim
        data = ctypes.cast(ggml.ggml_get_data(out), ctypes.POINTER(FLOAT))
        # [D, H, S, B] in ggml's order.
        dims = shape.batch, shape.query_len, shape.heads, shape.head_dim
        return np.ctypeslib.as_array(data, (count,)).reshape(dims)

    built = "AVX-512" if ggml.ggml_cpu_has_avx512() else "AVX2" if ggml.ggml_cpu_has_avx2() else "baseline"
    note = f"ggml_flash_attn_ext, dense cache; built for {built}"
    return Prepared(run, output, ggml.ggml_nbytes(key) + ggml.ggml_nbytes(value), note)
