"""Continuous batching: sequences join when there is room, are prefilled and decoded together, and leave."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .cached_model import CachedModel
from .model import Llama
from .paged_cache import CachedSequence, PagedCache

PREFILL_TOKENS = 256  # of one sequence in one step, so that a long prompt does not stall the others' answers


@dataclass(frozen=True)
class Request:
    """A prompt (token ids) to be continued greedily."""

    prompt: list[int]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()

    @property
    def max_length(self) -> int:
        """Tokens in the cache at the end; the last new token is never fed back."""
        return len(self.prompt) + self.max_new_tokens - 1


@dataclass(eq=False)
class Sequence:
    """A request that runs, or has run."""

    index: int  # in the order of submission
    request: Request
    cached: CachedSequence
    produced: list[int] = field(default_factory=list)

    def pending(self) -> list[int]:
        """Tokens that are not in the cache yet: what is left of the prompt, or the newest token."""
        return (self.request.prompt + self.produced)[self.cached.length :]

    @property
    def is_decoding(self) -> bool:
        return bool(self.produced)

    @property
    def is_finished(self) -> bool:
        complete = len(self.produced) == self.request.max_new_tokens
        return complete or (self.is_decoding and self.produced[-1] in self.request.stop_ids)


class Listener:
    """What the engine tells while it runs; override what is of interest."""

    def joined(self, sequence: Sequence) -> None: ...

    def produced(self, sequence: Sequence, token: int) -> None: ...

    def left(self, sequence: Sequence) -> None: ...


@dataclass(frozen=True)
class Step:
    """What one pass through the model did, and how long it took."""

    decoded: int  # sequences that brought their newest token
    prefilled: int  # prompt tokens
    pages: int  # in use by all sequences
    seconds: float
    attention_seconds: float


class Engine:
    """Answers requests out of one paged cache, at most max_running at a time."""

    def __init__(
        self,
        model: Llama,
        cache: PagedCache,
        requests: Iterable[Request],
        *,
        max_running: int,
        listener: Listener | None = None,
    ):
        self._model = CachedModel(model, cache)
        self._cache = cache
        self._max_running = max_running
        self._listener = listener or Listener()
        self._waiting = deque(enumerate(requests))
        self._running: list[Sequence] = []
        self._finished: list[Sequence] = []
        self.steps: list[Step] = []

    def run(self) -> list[Sequence]:
        """Answers all requests; the sequences come back in the order of the requests."""
        while self.is_busy:
            self.step()
        return self.finished

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def finished(self) -> list[Sequence]:
        return sorted(self._finished, key=lambda s: s.index)

    def step(self) -> None:
        """Lets sequences join, takes all that run one step further, and lets the finished ones leave."""
        self._admit()
        self._forward()
        for sequence in [s for s in self._running if s.is_finished]:
            self._running.remove(sequence)
            self._cache.leave(sequence.cached)
            self._finished.append(sequence)
            self._listener.left(sequence)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._max_running:
            index, request = self._waiting[0]
            if not self._cache.can_join(request.max_length):
                break
            self._waiting.popleft()
            self._running.append(Sequence(index, request, self._cache.join(request.max_length)))
            self._listener.joined(self._running[-1])
        if not self._running:
            raise RuntimeError("the cache is too small for the next request alone")

    def _forward(self) -> None:
        """One pass: the newest token of each decoding sequence, the next part of each other one's prompt."""
        began, attention_before = time.perf_counter(), self._model.attention_seconds
        # The operator wants the decoding sequences in front.
        batch = sorted(self._running, key=lambda s: not s.is_decoding)
        num_decoding = sum(s.is_decoding for s in batch)
        chunks = [s.pending()[:PREFILL_TOKENS] for s in batch]
        logits = self._model.extend([s.cached for s in batch], chunks, num_decoding=num_decoding)
        newest = np.argmax(logits, axis=-1)
        step = Step(
            decoded=num_decoding,
            prefilled=sum(map(len, chunks[num_decoding:])),
            pages=self._cache.used_pages,
            seconds=time.perf_counter() - began,
            attention_seconds=self._model.attention_seconds - attention_before,
        )
        self.steps.append(step)
        for sequence, token in zip(batch, newest.tolist(), strict=True):
            if not sequence.pending():
                sequence.produced.append(token)
                self._listener.produced(sequence, token)
