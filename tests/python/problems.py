"""Builds calls of multi_head_cache_attention: ragged batches over a cache in any layout, mode and format."""

from dataclasses import dataclass, field

import numpy as np
import quire
import reference

# Keyword-only arguments of the operator that a Problem holds under their own names.
SAME_NAMES = (
    "cache_layout",
    "cache_mode",
    "head_dim",
    "is_causal",
    "layer_idx",
    "num_layer",
    "page_size",
    "quant_bit",
    "quant_group",
    "sinks",
)


@dataclass
class Problem:
    """A call, all of its arrays made from `seed`. int4 caches are held one value to an int8 until `call`."""

    lengths: list  # (new tokens, tokens before them) of each sequence
    kv_heads: int = 2
    heads_per_kv: int = 2
    head_dim: int = 16
    activation: str = "float32"
    cache_type: str = "float32"  # where quant_bit is 0
    scale_type: str = "float32"
    quant_bit: int = 0
    quant_group: int = 8
    cache_mode: int = 0
    cache_layout: int = 0
    page_size: int = 4
    num_layer: int = 1
    layer_idx: int = 0
    mask: str = "none"  # "2d", "3d", "1d": one of all heads
    with_sinks: bool = False
    decoding_batches: int = 0
    is_causal: bool = True
    options: dict = field(default_factory=dict)  # is_alibi, softmax_scale, window_left, ...
    seed: int = 0

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        new, past = np.array(self.lengths, np.int64).reshape(-1, 2).T
        self.seqstarts = np.concatenate([[0], np.cumsum(new)])
        self.kvstarts = np.concatenate([[0], np.cumsum(new + past)])
        self.start_pos = past
        self.cachestarts, self.slots = self._place(new + past)
        tokens, heads = self.seqstarts[-1], self.kv_heads * self.heads_per_kv
        self.query = self._normal(tokens, heads, self.head_dim)
        self.current_key = self._normal(tokens, self.kv_heads, self.head_dim)
        self.current_value = self._normal(tokens, self.kv_heads, self.head_dim)
        self.cache, self.scale = self._cache()
        self.attn_mask = self._mask(heads, tokens)
        self.sinks = self.rng.normal(size=heads).astype(np.float32) if self.with_sinks else None

    @property
    def attributes(self):
        """The keyword-only arguments of the operator."""
        heads = {"num_heads": self.kv_heads * self.heads_per_kv, "num_kv_heads": self.kv_heads}
        return {**heads, **{name: getattr(self, name) for name in SAME_NAMES}, **self.options}

    def reference(self):
        """(output, lse, cache, scale) by the float64 definition; this problem is left as it is."""
        cache, scale = self.cache.copy(), None if self.scale is None else self.scale.copy()
        arguments = (*self.inputs(), cache, scale, self.attn_mask)
        return (*reference.multi_head_cache_attention(*arguments, **self.attributes), cache, scale)

    def call(self, context=None, sequence=None, **more):
        """By quire, all sequences or one alone: (output, lse, cache, scale). This problem stays as it is."""
        cache = quire.pack_int4(self.cache) if self.quant_bit == 4 else self.cache.copy()
        scale = None if self.scale is None else self.scale.copy()
        inputs, mask = (self.inputs(), self.attn_mask) if sequence is None else self._only(sequence)
        output, lse = quire.pmx.dynamic_batching.multi_head_cache_attention(
            *inputs, cache, scale, mask, **self.attributes, return_lse=True, context=context, **more
        )
        return output, lse, quire.unpack_int4(cache) if self.quant_bit == 4 else cache, scale

    def inputs(self):
        """The positional arguments before `cache`."""
        new, total = np.diff(self.seqstarts), np.diff(self.kvstarts)
        return (
            self.query,
            self.current_key,
            self.current_value,
            self.seqstarts,
            self.kvstarts,
            self.cachestarts,
            self.start_pos,
            self.decoding_batches,
            int(new.max(initial=0)),
            int(total.max(initial=0)),
        )

    def _only(self, b):
        """Inputs and mask of sequence b as a batch of its own, in the same cache."""
        tokens = slice(self.seqstarts[b], self.seqstarts[b + 1])
        columns = slice(self.kvstarts[b], self.kvstarts[b + 1])
        starts = [np.array([0, each.stop - each.start]) for each in (tokens, columns)]
        inputs = (
            self.query[tokens],
            self.current_key[tokens],
            self.current_value[tokens],
            *starts,
            self.cachestarts[b : b + 1],
            self.start_pos[b : b + 1],
            int(b < self.decoding_batches),
            0,
            0,
        )
        return inputs, None if self.attn_mask is None else self.attn_mask[..., tokens, columns]

    def _normal(self, *shape):
        return self.rng.normal(size=shape).astype(self.activation)

    def _place(self, totals):
        """Where sequences lie in the cache, with gaps between them: cachestarts, and the number of slots."""
        if self.cache_mode == 0:
            order = self.rng.permutation(len(totals))
            starts, row = np.zeros(len(totals), np.int64), 3
            for b in order:
                starts[b], row = row, row + totals[b] + 2
            return starts, row
        pages = -(-totals // self.page_size)
        # Entries past the last page in use are never read: they may hold anything.
        table = np.full((len(totals), pages.max(initial=0) + 1), -(10**9), np.int64)
        free = 3 + self.page_size * self.rng.permutation(pages.sum() + 2)  # not multiples of page_size
        for b, count in enumerate(pages):
            table[b, :count], free = free[:count], free[count:]
        return table, 3 + self.page_size * (pages.sum() + 2)

    def _cache(self):
        """Cache and scale: NaN (or any integer) where no position is, earlier tokens where one is."""
        shape = {
            0: (self.slots, self.num_layer, 2, self.kv_heads),
            1: (self.num_layer, self.slots, 2, self.kv_heads),
            2: (self.num_layer, 2, self.slots, self.kv_heads),
            3: (self.num_layer, 2, self.kv_heads, self.slots),
        }[self.cache_layout]
        scale = None
        if self.quant_bit == 0:
            cache = np.full((*shape, self.head_dim), np.nan, self.cache_type)
        else:
            limit = reference.LIMITS[self.quant_bit]
            cache = self.rng.integers(-limit, limit + 1, (*shape, self.head_dim)).astype(np.int8)
            scale = np.full((*shape, self.head_dim // self.quant_group), np.nan, self.scale_type)
        cached = reference.cache_rows(cache, self.cache_layout, self.layer_idx)
        scales = reference.cache_rows(scale, self.cache_layout, self.layer_idx)
        for b, past in enumerate(self.start_pos):
            rows = reference.rows_of(self.cachestarts, b, np.arange(past), self.cache_mode, self.page_size)
            for part, part_scale in zip(cached, scales):
                earlier = self._normal(past, self.kv_heads, self.head_dim)
                reference.store(earlier, rows, part, part_scale, self.quant_bit, self.quant_group)
        return cache, scale

    def _mask(self, heads, tokens):
        if self.mask == "none":
            return None
        shape = {"2d": (), "3d": (heads,), "1d": (1,)}[self.mask]
        mask = self.rng.normal(size=(*shape, tokens, self.kvstarts[-1] + 3))
        mask[self.rng.random(mask.shape) < 0.2] = -np.inf
        mask[..., self.kvstarts[-1] :] = np.nan  # padding, not read
        return mask.astype(self.activation)
