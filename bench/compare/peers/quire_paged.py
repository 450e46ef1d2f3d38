"""quire: quire.attention over a paged cache with shuffled pages, filled by quire.append."""

import re

import numpy as np

from . import Prepared

PACKAGE = "quire-attention"
PAGE = 128
# name -> (type of the cache, values that share a scale, precision)
TABLE = {
    "f32": (np.float32, 0, "highest"),
    "f16": (np.float16, 0, "highest"),
    "int8": (np.int8, 32, "highest"),
    "int8, high": (np.int8, 32, "high"),
    "int4": (np.uint8, 32, "highest"),
    "int4, high": (np.uint8, 32, "high"),
}
VARIANTS = tuple(TABLE)


def runs_lower(context, rows_of_head):
    """From the plan's note: "precision: keys medium for more query rows and high for 4 query rows, ...".

    Up to 8 rows each number has kernels of its own."""
    lists = re.findall(r"(?:high|medium) for ([0-9a-z ]+?) query rows", "".join(context.explain()))
    wanted = str(rows_of_head) if rows_of_head <= 8 else "more"
    return any(wanted in numbers.split() for numbers in lists)


def make(shape, variant, threads, q, k, v):
    import quire

    dtype, group, precision = TABLE[variant]
    context = quire.Context(num_threads=threads)
    pages = -(-shape.kv_len // PAGE)
    slots = shape.batch * pages * PAGE
    dim = shape.head_dim // 2 if dtype == np.uint8 else shape.head_dim
    # PMX's layout 3: the rows of a head lie together.
    rows = [np.zeros((shape.kv_heads, slots, dim), dtype).swapaxes(0, 1) for _ in range(2)]
    scales = [None, None]
    if group:
        groups = shape.kv_heads, slots, shape.head_dim // group
        scales = [np.zeros(groups, np.float16).swapaxes(0, 1) for _ in range(2)]
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
        )

    run()
    rows_of_head = shape.query_len * shape.heads // shape.kv_heads
    if precision != "highest" and not runs_lower(context, rows_of_head):
        raise NotImplementedError(f"this version runs {precision} as highest here")
    nbytes = sum(array.nbytes for array in (*rows, *scales) if array is not None)
    return Prepared(run, lambda: out, nbytes, f"{context.target_name}; pages of {PAGE}")
