"""torch: scaled_dot_product_attention over dense keys and values."""

from . import Prepared

PACKAGE = "torch"
VARIANTS = "f32", "bf16"


def make(shape, variant, threads, q, k, v):
    import torch

    torch.set_num_threads(threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[variant]
    query, key, value = (torch.from_numpy(x).to(dtype).transpose(1, 2).contiguous() for x in (q, k, v))
    mask = None
    if 1 < shape.query_len < shape.kv_len:
        position = shape.kv_len - shape.query_len + torch.arange(shape.query_len)
        mask = torch.zeros(shape.query_len, shape.kv_len, dtype=dtype)
        mask.masked_fill_(torch.arange(shape.kv_len)[None] > position[:, None], float("-inf"))
    out = None

    def run():
        nonlocal out
        with torch.inference_mode():
            out = torch.nn.functional.scaled_dot_product_attention(
                *(query, key, value),
                attn_mask=mask,
                is_causal=shape.query_len == shape.kv_len,
                enable_gqa=shape.heads != shape.kv_heads,
            )

    nbytes = (key.numel() + value.numel()) * key.element_size()
    return Prepared(run, lambda: out.transpose(1, 2).float().numpy(), nbytes, "SDPA, dense cache")
