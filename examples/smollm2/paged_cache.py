"""One paged key/value cache for all layers and sequences, and the call of quire that fills and reads it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np
import quire

from .cache_format import CacheFormat
from .parameters import Hyperparameters

NO_PAGE = -1  # fills page tables past a sequence's last page; the operator never reads these entries


class PagePool:
    """The free list. A page is named by the index of its first token in the cache."""

    def __init__(self, num_pages: int, page_size: int, seed: int = 0):
        # Shuffled, so that neighbours in a sequence are not neighbours in memory, as after hours of serving.
        order = np.random.default_rng(seed).permutation(num_pages)
        self._free = [int(page) * page_size for page in order]

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int:
        return self._free.pop()

    def give_back(self, pages: SequenceOf[int]) -> None:
        self._free.extend(pages)


@dataclass(eq=False)
class CachedSequence:
    """The place of one sequence in the cache."""

    max_pages: int  # promised when it joined, so that a running sequence never lacks a page
    pages: list[int] = field(default_factory=list)
    length: int = 0  # tokens


@dataclass(frozen=True)
class CacheBatch:
    """The operator's index tensors (int64) for one step; the same for every layer."""

    seqstarts: np.ndarray  # [B + 1]
    kvstarts: np.ndarray  # [B + 1]
    cachestarts: np.ndarray  # [B, MaxP] page beginnings
    start_pos: np.ndarray  # [B]
    decoding_batches: int
    max_seqlen: int
    max_kvlen: int

    def positions(self) -> np.ndarray:
        """Position of every query token in its own sequence: [n]."""
        lengths = np.diff(self.seqstarts)
        return np.arange(self.seqstarts[-1]) + np.repeat(self.start_pos - self.seqstarts[:-1], lengths)


class PagedCache:
    """cache [L, 2, Hk, MaxT, D] (int4: D / 2 bytes) and scale [L, 2, Hk, MaxT, D / quant_group]: layout 3.

    With blocks: cache [L, 2, Hk, MaxT / 16, bytes of a block of 16 tokens], which has the scales.
    """

    def __init__(
        self,
        cache_format: CacheFormat,
        parameters: Hyperparameters,
        *,
        num_pages: int,
        page_size: int = 64,
        quant_group: int = 32,
        blocks: bool = False,
    ):
        p = parameters
        rows = (p.num_layer, 2, p.num_kv_heads, num_pages * page_size)
        self.format = cache_format
        self.num_pages = num_pages
        self.page_size = page_size
        self.bytes_per_token = cache_format.bytes_per_token(p, quant_group)
        self._formats = {}
        if blocks:
            name = f"int{cache_format.quant_bit}_b16_g{quant_group}"
            self._formats = dict(key_format=name, value_format=name)
            shape = (*rows[:3], rows[3] // 16, quire.block_bytes(name, p.head_dim))
            self.cache = quire.cache_alloc(shape, np.uint8)
        else:
            self.cache = quire.cache_alloc(
                (*rows, p.head_dim // cache_format.values_per_element), cache_format.dtype
            )
        self.scale = None
        if cache_format.quant_bit and not blocks:
            self.scale = np.zeros((*rows, p.head_dim // quant_group), np.float16)
        self._pool = PagePool(num_pages, page_size)
        self._promised = 0  # pages that running sequences may still take
        self._attributes = dict(
            num_heads=p.num_heads,
            head_dim=p.head_dim,
            is_causal=True,
            num_kv_heads=p.num_kv_heads,
            num_layer=p.num_layer,
            quant_bit=cache_format.quant_bit,
            quant_group=quant_group,
            cache_mode=1,
            cache_layout=3,
            page_size=page_size,
        )

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    @property
    def used_pages(self) -> int:
        return self.num_pages - len(self._pool)

    def can_join(self, max_length: int) -> bool:
        """Whether a sequence that grows to max_length tokens will find its pages, whatever the others do."""
        return self.pages_for(max_length) <= len(self._pool) - self._promised

    def join(self, max_length: int) -> CachedSequence:
        if not self.can_join(max_length):
            raise RuntimeError(
                f"no {self.pages_for(max_length)} pages left for a sequence of {max_length} tokens"
            )
        sequence = CachedSequence(max_pages=self.pages_for(max_length))
        self._promised += sequence.max_pages
        return sequence

    def leave(self, sequence: CachedSequence) -> None:
        self._promised -= sequence.max_pages - len(sequence.pages)
        self._pool.give_back(sequence.pages)
        sequence.pages, sequence.length, sequence.max_pages = [], 0, 0

    def grow(
        self, sequences: SequenceOf[CachedSequence], new_tokens: SequenceOf[int], num_decoding: int
    ) -> CacheBatch:
        """Makes room for new tokens of each sequence; the first num_decoding ones bring one token each."""
        start_pos = [sequence.length for sequence in sequences]
        for sequence, count in zip(sequences, new_tokens, strict=True):
            self._grow_one(sequence, count)
        lengths = [sequence.length for sequence in sequences]
        return CacheBatch(
            seqstarts=_starts(new_tokens),
            kvstarts=_starts(lengths),
            cachestarts=_page_table(sequences),
            start_pos=np.array(start_pos, np.int64),
            decoding_batches=num_decoding,
            max_seqlen=max(new_tokens),
            max_kvlen=max(lengths),
        )

    def attend(
        self, batch: CacheBatch, layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray
    ) -> np.ndarray:
        """Stores key and value [n, Hk, D]; the attention of query [n, H, D] over the cache: [n, H, D]."""
        if self.format.rotated or self._formats:
            return self._attend_in_two_calls(batch, layer, query, key, value)
        return quire.pmx.dynamic_batching.multi_head_cache_attention(
            query,
            key,
            value,
            batch.seqstarts,
            batch.kvstarts,
            batch.cachestarts,
            batch.start_pos,
            batch.decoding_batches,
            batch.max_seqlen,
            batch.max_kvlen,
            self.cache,
            self.scale,
            layer_idx=layer,
            **self._attributes,
        )

    def _attend_in_two_calls(
        self, batch: CacheBatch, layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray
    ) -> np.ndarray:
        """The same by the general operators: append may rotate, and then queries and outputs are to match."""
        sides = [self.cache[layer, side].swapaxes(0, 1) for side in (0, 1)]  # [MaxT, Hk, D], or blocks
        if self.scale is not None:
            sides += [self.scale[layer, side].swapaxes(0, 1) for side in (0, 1)]
        rows = dict(
            seqstarts=batch.seqstarts,
            cachestarts=batch.cachestarts,
            page_size=self.page_size,
            **self._formats,
        )
        rotated = self.format.rotated
        quire.append(
            key,
            value,
            *sides,
            start_pos=batch.start_pos,
            hadamard_keys=rotated,
            hadamard_values=rotated,
            **rows,
        )
        output, _ = quire.attention(
            quire.rotate(query, hadamard=True) if rotated else query,
            *sides,
            kvstarts=batch.kvstarts,
            is_causal=True,
            decoding_batches=batch.decoding_batches,
            **rows,
        )
        return quire.rotate(output, hadamard=True, output=output) if rotated else output

    def _grow_one(self, sequence: CachedSequence, count: int) -> None:
        needed = self.pages_for(sequence.length + count)
        if needed > sequence.max_pages:
            raise RuntimeError(f"a sequence that was promised {sequence.max_pages} pages needs {needed}")
        while len(sequence.pages) < needed:
            sequence.pages.append(self._pool.take())
            self._promised -= 1
        sequence.length += count


def _starts(lengths: SequenceOf[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _page_table(sequences: SequenceOf[CachedSequence]) -> np.ndarray:
    table = np.full((len(sequences), max(len(s.pages) for s in sequences)), NO_PAGE, np.int64)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence.pages)] = sequence.pages
    return table
