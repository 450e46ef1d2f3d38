"""Calls of the PMX operators over sequences of one length, and of attention over plain keys and values."""

from dataclasses import dataclass, field

import numpy as np
import quire
import reference


def fixed_rows(tensor, cache_layout, layer_idx):
    """Key and value [MaxB, MaxS, Hk, ...] as views of a static cache or scale tensor; two None of None."""
    if tensor is None:
        return None, None
    if cache_layout == 0:
        return tensor[:, layer_idx, 0], tensor[:, layer_idx, 1]
    return tensor[layer_idx, :, 0].swapaxes(1, 2), tensor[layer_idx, :, 1].swapaxes(1, 2)


def random_mask(rng, shape, activation):
    """An additive mask of that shape with some keys hidden; None: no mask."""
    if shape is None:
        return None
    mask = rng.normal(size=shape)
    mask[rng.random(shape) < 0.2] = -np.inf
    return mask.astype(activation)


@dataclass
class FixedProblem:
    """MultiHeadCacheAttention and KeyValueCache of the static document. int4 as in problems.Problem."""

    batch: int = 2
    new: int = 3  # S
    past: int = 5  # start_pos
    kv_heads: int = 2
    heads_per_kv: int = 2
    head_dim: int = 16
    activation: str = "float32"
    cache_type: str = "float32"  # where quant_bit is 0
    scale_type: str = "float32"
    quant_bit: int = 0
    quant_group: int = 8
    cache_layout: int = 0
    num_layer: int = 1
    layer_idx: int = 0
    mask: tuple = None  # of "B", "H", "S", "T" and 1, the last two to four dimensions
    with_sinks: bool = False
    is_causal: bool = True
    options: dict = field(default_factory=dict)  # is_alibi, softmax_scale, window_left, ...
    seed: int = 0

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.keys, self.heads = self.past + self.new, self.kv_heads * self.heads_per_kv
        self.query = self._normal(self.batch, self.new, self.heads, self.head_dim)
        self.current_key = self._normal(self.batch, self.new, self.kv_heads, self.head_dim)
        self.current_value = self._normal(self.batch, self.new, self.kv_heads, self.head_dim)
        self.cache, self.scale = self._cache()
        lengths = {"B": self.batch, "H": self.heads, "S": self.new, "T": self.keys, 1: 1}
        shape = self.mask and tuple(lengths[letter] for letter in self.mask)
        self.attn_mask = random_mask(self.rng, shape, self.activation)
        self.sinks = self.rng.normal(size=self.heads).astype(np.float32) if self.with_sinks else None

    @property
    def cache_attributes(self):
        names = ("num_layer", "layer_idx", "quant_bit", "quant_group", "cache_layout")
        return {name: getattr(self, name) for name in names}

    @property
    def attributes(self):
        return {
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "is_causal": self.is_causal,
            "sinks": self.sinks,
            **self.cache_attributes,
            **self.options,
        }

    def attend(self, context=None, start_pos=None):
        """(output, lse, cache, scale) by quire; this problem stays as it is."""
        cache, scale = self._copies()
        output, lse = quire.pmx.multi_head_cache_attention(
            self.query,
            self.current_key,
            self.current_value,
            self.past if start_pos is None else start_pos,
            cache,
            scale,
            self.attn_mask,
            **self.attributes,
            return_lse=True,
            context=context,
        )
        return output, lse, self._unpacked(cache), scale

    def read(self, num_repeat=1, context=None, start_pos=None):
        """(key, value, cache, scale) by quire's KeyValueCache."""
        cache, scale = self._copies()
        start_pos = self.past if start_pos is None else start_pos
        key, value = quire.pmx.key_value_cache(
            self.current_key,
            self.current_value,
            start_pos,
            cache,
            scale,
            num_repeat=num_repeat,
            **self.cache_attributes,
            context=context,
        )
        return key, value, self._unpacked(cache), scale

    def stored(self):
        """(cache, scale, keys, values) after the new tokens, keys and values [B, T, Hk, D] float64."""
        cache, scale = self.cache.copy(), None if self.scale is None else self.scale.copy()
        cached = fixed_rows(cache, self.cache_layout, self.layer_idx)
        scales = fixed_rows(scale, self.cache_layout, self.layer_idx)
        results = []
        for current, part, part_scale in zip((self.current_key, self.current_value), cached, scales):
            for b in range(self.batch):
                part_scale_b = None if part_scale is None else part_scale[b]
                rows = np.arange(self.past, self.keys)
                reference.store(current[b], rows, part[b], part_scale_b, self.quant_bit, self.quant_group)
            used = part[: self.batch, : self.keys]
            used_scale = None if part_scale is None else part_scale[: self.batch, : self.keys]
            results.append(reference.dequantise(used, used_scale))
        return (cache, scale, *results)

    def reference(self):
        """(output, lse, cache, scale) by the float64 definition."""
        cache, scale, key, value = self.stored()
        options = {"is_causal": self.is_causal, "sinks": self.sinks, **self.options}
        options["scale"] = options.pop("softmax_scale", None)
        output, lse = fixed_attention(self.query, key, value, self.attn_mask, **options)
        return output, lse, cache, scale

    def _normal(self, *shape):
        return self.rng.normal(size=shape).astype(self.activation)

    def _copies(self):
        cache = quire.pack_int4(self.cache) if self.quant_bit == 4 else self.cache.copy()
        return cache, None if self.scale is None else self.scale.copy()

    def _unpacked(self, cache):
        return quire.unpack_int4(cache) if self.quant_bit == 4 else cache

    def _cache(self):
        """More sequences and positions than are used; NaN (or any integer) where nothing is."""
        most, length = self.batch + 1, self.keys + 3
        shape = {
            0: (most, self.num_layer, 2, length, self.kv_heads),
            1: (self.num_layer, most, 2, self.kv_heads, length),
        }[self.cache_layout]
        scale = None
        if self.quant_bit == 0:
            cache = np.full((*shape, self.head_dim), np.nan, self.cache_type)
        else:
            limit = reference.LIMITS[self.quant_bit]
            cache = self.rng.integers(-limit, limit + 1, (*shape, self.head_dim)).astype(np.int8)
            scale = np.full((*shape, self.head_dim // self.quant_group), np.nan, self.scale_type)
        cached = fixed_rows(cache, self.cache_layout, self.layer_idx)
        scales = fixed_rows(scale, self.cache_layout, self.layer_idx)
        for part, part_scale in zip(cached, scales):
            for b in range(self.batch):
                earlier = self._normal(self.past, self.kv_heads, self.head_dim)
                part_scale_b = None if part_scale is None else part_scale[b]
                rows = np.arange(self.past)
                reference.store(earlier, rows, part[b], part_scale_b, self.quant_bit, self.quant_group)
        return cache, scale


def fixed_attention(query, key, value, attn_mask=None, **options):
    """[B, S, H, D], [B, T, Hk, D] -> output [B, S, H, D], lse [B, S, H] by the float64 definition."""
    batch, queries, heads = query.shape[:3]
    masks = [None] * batch
    if attn_mask is not None:
        shape = (batch, heads, queries, key.shape[1])
        masks = np.broadcast_to(attn_mask.astype(float), shape)
    output, lse = np.zeros(query.shape), np.zeros(query.shape[:3])
    for b in range(batch):
        output[b], lse[b] = reference.attention(query[b], key[b], value[b], attn_mask=masks[b], **options)
    return output, lse


@dataclass
class PlainProblem:
    """dynamic_batching.MultiHeadAttention: ragged queries over plain keys and values."""

    lengths: list  # (queries, keys) of each sequence
    kv_heads: int = 2
    heads_per_kv: int = 2
    head_dim: int = 16
    activation: str = "float32"
    mask: str = "none"  # "2d", "3d", "1d": one of all heads
    with_sinks: bool = False
    decoding_batches: int = 0
    is_causal: bool = True
    options: dict = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        queries, keys = np.array(self.lengths, np.int64).reshape(-1, 2).T
        self.heads = self.kv_heads * self.heads_per_kv
        self.seqstarts = np.concatenate([[0], np.cumsum(queries)])
        self.kvstarts = np.concatenate([[0], np.cumsum(keys)])
        tokens, rows = self.seqstarts[-1], self.kvstarts[-1]
        self.query, self.key, self.value = (
            rng.normal(size=(length, heads, self.head_dim)).astype(self.activation)
            for length, heads in ((tokens, self.heads), (rows, self.kv_heads), (rows, self.kv_heads))
        )
        shapes = {"none": None, "2d": (), "3d": (self.heads,), "1d": (1,)}
        lead = shapes[self.mask]
        shape = None if lead is None else (*lead, tokens, rows + 3)
        self.attn_mask = random_mask(rng, shape, self.activation)
        if shape is not None:
            self.attn_mask[..., rows:] = np.nan  # padding, not read
        self.sinks = rng.normal(size=self.heads).astype(np.float32) if self.with_sinks else None

    @property
    def attributes(self):
        heads = {"num_heads": self.heads, "num_kv_heads": self.kv_heads, "head_dim": self.head_dim}
        return {**heads, "is_causal": self.is_causal, "sinks": self.sinks, **self.options}

    def attend(self, context=None):
        """(output, lse) by quire."""
        return quire.pmx.dynamic_batching.multi_head_attention(
            self.query,
            self.key,
            self.value,
            self.seqstarts,
            self.kvstarts,
            self.decoding_batches,
            int(np.diff(self.seqstarts).max(initial=0)),
            int(np.diff(self.kvstarts).max(initial=0)),
            self.attn_mask,
            **self.attributes,
            return_lse=True,
            context=context,
        )

    def reference(self):
        """(output, lse) by the float64 definition."""
        options = dict(self.options)
        options["scale"] = options.pop("softmax_scale", None)
        output, lse = np.zeros(self.query.shape), np.zeros(self.query.shape[:2])
        for b in range(len(self.lengths)):
            tokens = slice(self.seqstarts[b], self.seqstarts[b + 1])
            columns = slice(self.kvstarts[b], self.kvstarts[b + 1])
            mask = None if self.attn_mask is None else self.attn_mask[..., tokens, columns].astype(float)
            output[tokens], lse[tokens] = reference.attention(
                self.query[tokens],
                self.key[columns],
                self.value[columns],
                is_causal=self.is_causal and b >= self.decoding_batches,
                sinks=self.sinks,
                attn_mask=mask,
                **options,
            )
        return output, lse
