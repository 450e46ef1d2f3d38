"""Attention on CPUs over paged, quantised key/value caches, by SIMD code generated for the machine.

Arrays are NumPy's, or any with `__dlpack__` in CPU memory. They are not copied; in-place ones are changed.
Errors are `quire.Error`, a ValueError whose message names the argument.
"""

from . import directml, mindspore, onnx, pmx
from ._quire import (
    Context,
    Error,
    __version__,
    append,
    attention,
    explain,
    merge_states,
    num_threads,
    target_name,
)
from .int4 import pack_int4, unpack_int4

__all__ = [
    "Context",
    "Error",
    "__version__",
    "append",
    "attention",
    "directml",
    "explain",
    "merge_states",
    "mindspore",
    "num_threads",
    "onnx",
    "pack_int4",
    "pmx",
    "target_name",
    "unpack_int4",
]
