"""A model whose keys and values live in a paged cache."""

from __future__ import annotations

import time
from collections.abc import Sequence as SequenceOf

import numpy as np

from .model import Llama
from .paged_cache import CachedSequence, PagedCache


class CachedModel:
    """Feeds new tokens of several sequences through the model, and adds up the time inside attention."""

    def __init__(self, model: Llama, cache: PagedCache):
        self.cache = cache
        self.attention_seconds = 0.0
        self._model = model

    def extend(
        self,
        sequences: SequenceOf[CachedSequence],
        new_tokens: SequenceOf[list[int]],
        *,
        num_decoding: int = 0,
        logit_rows: np.ndarray | None = None,
    ) -> np.ndarray:
        """Logits [rows, vocabulary] after the last new token of each sequence, or of the given rows.

        new_tokens: one list a sequence. A row is the index of a token when these lists are put end to end.
        """
        batch = self.cache.grow(sequences, [len(tokens) for tokens in new_tokens], num_decoding)
        rows = batch.seqstarts[1:] - 1 if logit_rows is None else logit_rows

        def attend(layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
            began = time.perf_counter()
            output = self.cache.attend(batch, layer, query, key, value)
            self.attention_seconds += time.perf_counter() - began
            return output

        return self._model.forward(np.concatenate(new_tokens), batch.positions(), rows, attend)
