"""ik_llama.cpp: ggml_flash_attn_ext of its ggml, built for this processor (PEERS_IK_LLAMA is where)."""

import os
from pathlib import Path

import numpy as np

from .ggml import INT, TYPES, library, prepare, visible

PACKAGE = "ik-llama-cpp-python"
VARIANTS = tuple(TYPES)
KEYS, ROWS = 32, 16  # its kernels take a multiple of so many keys; masks have one of so many rows
FUNCTIONS = {"ggml_cpu_has_avx512_vnni": (INT, []), "ggml_cpu_has_avx_vnni": (INT, [])}


def directory():
    found = Path(os.environ.get("PEERS_IK_LLAMA", "."))
    if not (found / "libggml.so").exists():
        raise FileNotFoundError(
            "ik_llama.cpp is not there: its libggml.so was not built (QUIRE_IK_LLAMA names a checkout of it)"
        )
    return found.resolve()


def built_for(ggml):
    if ggml.ggml_cpu_has_avx512():
        return "AVX-512 with VNNI" if ggml.ggml_cpu_has_avx512_vnni() else "AVX-512"
    if ggml.ggml_cpu_has_avx2():
        return "AVX2 with AVX-VNNI" if ggml.ggml_cpu_has_avx_vnni() else "AVX2"
    return "baseline"


def padded(count, to):
    return -(-count // to) * to


def make(shape, variant, threads, q, k, v):
    found = directory()
    ggml = library(found / "libggml.so", FUNCTIONS)
    cpu = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    keys = padded(shape.kv_len, KEYS)
    k, v = (np.pad(x, ((0, 0), (0, keys - shape.kv_len), (0, 0), (0, 0))) for x in (k, v))
    mask = visible(shape, padded(shape.query_len, ROWS), keys)
    # Its own cache is [D, Hk, T, B] in ggml's order; with the rows of a head together it is faster.
    made = prepare(ggml, cpu, shape, TYPES[variant], q, k, v, mask, heads_first=True)
    order = "a head's rows together (in its own order it is slower)"
    made.note = f"ggml_flash_attn_ext, dense cache, {order}; built for {built_for(ggml)}"
    made.version = (found / "version").read_text().strip()
    return made
