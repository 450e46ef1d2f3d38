"""Attention on CPUs over paged, quantised key/value caches, by SIMD code generated for the machine.

    attention, append, merge_states     the general operators: attend, store in a cache, merge parts
    rotate, rotary_tables               rotary embedding, Hadamard rotation of queries, as append does of keys
    cache_alloc                         zeroed memory for a cache, in large pages where the system has them
    pages_as_rows                       pages of all heads, as many runtimes keep them, as rows
    block_bytes, repack                 caches in blocks of 16 tokens, which decode reads fastest
    pack_int4, unpack_int4              int4 as caches hold it, two values a byte
    quire.pmx                           OpenPPL PMX over sequences of one length
    quire.pmx.dynamic_batching          the same over ragged ones
    quire.directml, quire.onnx          DirectML's MULTIHEAD_ATTENTION1, ONNX's Attention
    quire.transformers                  for models of Hugging Face transformers (imported apart)
    Context                             target and threads of calls, where not the default ones
    target_name, num_threads, explain   what calls run on, and how
    predict                             how fast a call could be

Arrays are NumPy's, or any with `__dlpack__` in CPU memory, as torch's. They are not copied; in-place ones are
changed. Errors are `quire.Error`, a ValueError whose message names the argument, its value and the rule, and
nothing was written then. Calls release the GIL, and may come from many threads at once.

    >>> import numpy as np, quire
    >>> shapes = (1, 8, 64), (100, 2, 64), (100, 2, 64)  # tokens, heads, head size
    >>> query, key, value = (np.random.randn(*shape).astype(np.float32) for shape in shapes)
    >>> output, _ = quire.attention(query, key, value, is_causal=True)
    >>> output.shape
    (1, 8, 64)
"""

from . import directml, mindspore, onnx, pmx
from ._predict import Prediction, predict
from ._quire import (
    Context,
    Error,
    __version__,
    append,
    attention,
    block_bytes,
    explain,
    merge_states,
    num_threads,
    repack,
    rotary_tables,
    rotate,
    target_name,
)
from .cache_memory import cache_alloc, pages_as_rows
from .int4 import pack_int4, unpack_int4

__all__ = [
    "Context",
    "Error",
    "Prediction",
    "__version__",
    "append",
    "attention",
    "block_bytes",
    "cache_alloc",
    "directml",
    "explain",
    "merge_states",
    "mindspore",
    "num_threads",
    "onnx",
    "pack_int4",
    "pages_as_rows",
    "pmx",
    "predict",
    "repack",
    "rotary_tables",
    "rotate",
    "target_name",
    "unpack_int4",
]
