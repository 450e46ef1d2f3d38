"""llama.cpp: ggml_flash_attn_ext through the functions that the wheel of xllamacpp exports."""

import ctypes
import importlib.util
from pathlib import Path

from .ggml import INT, POINTER, TYPES, library, prepare, visible

PACKAGE = "xllamacpp"
VARIANTS = tuple(TYPES)


class ThreadpoolParams(ctypes.Structure):
    _fields_ = [
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


FUNCTIONS = {
    "ggml_backend_cpu_set_threadpool": (None, [POINTER, POINTER]),
    "ggml_threadpool_params_default": (ThreadpoolParams, [INT]),
    "ggml_threadpool_new": (POINTER, [ctypes.POINTER(ThreadpoolParams)]),
}


def path():
    found = importlib.util.find_spec("xllamacpp")
    if found is None:
        raise ModuleNotFoundError("No module named 'xllamacpp'")
    return sorted(Path(found.origin).parent.glob("xllamacpp*.so"))[0]


def make(shape, variant, threads, q, k, v):
    ggml = library(path(), FUNCTIONS)
    cpu = ggml.ggml_backend_cpu_init()
    pool = ggml.ggml_threadpool_params_default(threads)
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    ggml.ggml_backend_cpu_set_threadpool(cpu, ggml.ggml_threadpool_new(ctypes.byref(pool)))
    # As llama.cpp's cache: [D, Hk, T, B] in ggml's order, seen as [D, T, Hk, B].
    mask = visible(shape, shape.query_len, shape.kv_len)
    made = prepare(ggml, cpu, shape, TYPES[variant], q, k, v, mask, heads_first=False)
    built = "AVX-512" if ggml.ggml_cpu_has_avx512() else "AVX2" if ggml.ggml_cpu_has_avx2() else "baseline"
    made.note = f"ggml_flash_attn_ext, dense cache; built for {built}"
    return made
