"""quire: quire.attention over a paged cache with shuffled pages, filled by quire.append."""

import re

import numpy as np

from . import Prepared

PACKAGE = "quire-attention"
PAGE = 128
# name -> (cache, precision)
TABLE = {
    "f32": ("f32", "highest"),
    "f16": ("f16", "highest"),
    **{
        f"{cache}{'' if precision == 'highest' else ', ' + precision}": (cache, precision)
        for cache in ("int8", "int4", "int8_b16", "int4_b16")
        for precision in ("highest", "high", "medium")
    },
}
VARIANTS = tuple(TABLE)
GROUP = 32  # values that share a scale
PRECISIONS = "highest", "high", "medium"


def runs_as(context, rows_of_head):
    """From the plan's note: "precision: keys medium for more query rows and high for 4 query rows, ...".

    Up to 8 rows each number has kernels of its own."""
    lists = re.findall(r"(high|medium) for ([0-9a-z ]+?) query rows", "".join(context.explain()))
    wanted = str(rows_of_head) if rows_of_head <= 8 else "more"
    named = [name for name, numbers in lists if wanted in numbers.split()]
    return max(named, key=PRECISIONS.index, default="highest")


def empty_cache(cache, shape, slots):
    """Keys and values, their scales, and what quire is to be told of them."""
    import quire

    if cache.endswith("_b16"):
        named = f"{cache}_g{GROUP}"
        blocks = slots // 16, shape.kv_heads, quire.block_bytes(named, shape.head_dim)
        return (
            [quire.cache_alloc(blocks, np.uint8) for _ in range(2)],
            [],
            dict(key_format=named, value_format=named),
        )
    dtype = {"f32": np.float32, "f16": np.float16, "int8": np.int8, "int4": np.uint8}[cache]
    dim = shape.head_dim // 2 if cache == "int4" else shape.head_dim
    # PMX's layout 3: the rows of a head lie together.
    rows = [quire.cache_alloc((shape.kv_heads, slots, dim), dtype).swapaxes(0, 1) for _ in range(2)]
    groups = shape.kv_heads, slots, shape.head_dim // GROUP
    if "int" not in cache:
        return rows, [], {}
    return rows, [quire.cache_alloc(groups, np.float16).swapaxes(0, 1) for _ in range(2)], {}


def make(shape, variant, threads, q, k, v):
    import quire

    cache, precision = TABLE[variant]
    context = quire.Context(num_threads=threads)
    pages = -(-shape.kv_len // PAGE)
    slots = shape.batch * pages * PAGE
    rows, scales, formats = empty_cache(cache, shape, slots)
    table = np.random.default_rng(7).permutation(shape.batch * pages).reshape(shape.batch, pages) * PAGE
    starts = np.arange(shape.batch + 1)
    flat = (shape.batch * shape.kv_len, shape.kv_heads, shape.head_dim)
    quire.append(
        *(k.reshape(flat), v.reshape(flat), *rows, *scales),
        seqstarts=starts * shape.kv_len,
        start_pos=np.zeros(shape.batch, np.int64),
        cachestarts=table,
        page_size=PAGE,
        context=context,
        **formats,
    )
    query = q.reshape(-1, shape.heads, shape.head_dim)
    out = np.empty_like(query)

    def run():
        quire.attention(
            *(query, *rows, *scales),
            seqstarts=starts * shape.query_len,
            kvstarts=starts * shape.kv_len,
            cachestarts=table,
            page_size=PAGE,
            is_causal=True,
            precision=precision,
            out=out,
            context=context,
            **formats,
        )

    run()
    taken = runs_as(context, shape.query_len * shape.heads // shape.kv_heads)
    if taken != precision and taken == "highest":
        raise NotImplementedError(f"this version runs {precision} as highest here")
    nbytes = sum(array.nbytes for array in (*rows, *scales))
    note = f"{context.target_name}; pages of {PAGE}" + (f"; runs as {taken}" if taken != precision else "")
    return Prepared(run, lambda: out, nbytes, note)
