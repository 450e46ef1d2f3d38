"""What llama.cpp and ik_llama.cpp share: ggml by ctypes, and a graph of one ggml_flash_attn_ext."""

import ctypes

import numpy as np

from . import Prepared

# name -> ggml_type
TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
F32, F16 = 0, 1
CONTEXT_BYTES = 1 << 24  # of tensors without their data, and the graph


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


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
    # The last is that of later versions of ik_llama.cpp; others do not look at it.
    "ggml_quantize_chunk": (SIZE, [INT, POINTER, POINTER, LONG, LONG, LONG, POINTER, POINTER]),
    "ggml_backend_cpu_init": (POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [POINTER, INT]),
    "ggml_backend_alloc_ctx_tensors": (POINTER, [POINTER, POINTER]),
    "ggml_backend_graph_compute": (INT, [POINTER, POINTER]),
    "ggml_cpu_has_avx2": (INT, []),
    "ggml_cpu_has_avx512": (INT, []),
}


def library(path, more):
    """With the functions above and what else the peer calls."""
    ggml = ctypes.CDLL(str(path))
    for name, (result, arguments) in {**FUNCTIONS, **more}.items():
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
        ggml.ggml_quantize_chunk(kind, rows.ctypes.data, to, 0, *rows.shape, None, None)


def visible(shape, rows, keys):
    """The mask that llama.cpp gives, [rows, keys] with padding: 0 where a query sees a key, else -inf."""
    position = shape.kv_len - shape.query_len + np.arange(rows)
    position[shape.query_len :] = -1
    return np.where(np.arange(keys)[None] > position[:, None], -np.inf, 0).astype(np.float32)


def prepare(ggml, cpu, shape, kind, q, k, v, mask, heads_first):
    """k, v [B, keys, Hk, D]; their tensors lie so (that is [D, Hk, T, B] in ggml's order), or heads first."""
    context = ggml.ggml_init(InitParams(CONTEXT_BYTES, None, True))
    filled = []

    def tensor(of, data):
        made = ggml.ggml_new_tensor_4d(context, of, *reversed(data.shape))
        filled.append((made, of, data))
        return made

    def seen(made):
        """[D, T, H, B] in ggml's order."""
        return ggml.ggml_permute(context, made, 0, 2, 1, 3)

    query = tensor(F32, q)
    if heads_first:
        key, value = views = [tensor(kind, x.transpose(0, 2, 1, 3)) for x in (k, v)]
    else:
        key, value = (tensor(kind, x) for x in (k, v))
        views = seen(key), seen(value)
    out = ggml.ggml_flash_attn_ext(
        *(context, seen(query), *views, tensor(F16, mask[None, None])), shape.head_dim**-0.5, 0.0, 0.0
    )
    if not ggml.ggml_backend_alloc_ctx_tensors(context, cpu):
        raise MemoryError("ggml_backend_alloc_ctx_tensors")
    for made in filled:
        write(ggml, *made)
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

    return Prepared(run, output, ggml.ggml_nbytes(key) + ggml.ggml_nbytes(value))
