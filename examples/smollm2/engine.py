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

    def stepped(self, step: Step) -> None: ...


@dataclass(frozen=True)
class Step:
    """What one pass through the model did, and how long it took."""

    decoded: int  # sequences that brought their newest token
    prefilled: int  # prompt tokens
    pages: int  # in use by all sequences
    seconds: float
    attention_seconds: float


class Engine:
    """Runs requests in one paged cache, at most max_running at a time."""

    def __init__(
        self, model: Llama, cache: PagedCache, *, max_running: int, listener: Listener | None = None
    ):
        self._model = CachedModel(model, cache)
        self._cache = cache
        self._max_running = max_running
        self._listener = listener or Listener()
        self.steps: list[Step] = []

    def run(self, requests: Iterable[Request]) -> list[Sequence]:
        """Answers all requests; the sequences come back in the order of the requests."""
        waiting = deque(enumerate(requests))
        running: list[Sequence] = []
        finished: list[Sequence] = []
        while waiting or running:
            self._admit(waiting, running)
            self._step(running)
            for sequence in [s for s in running if s.is_finished]:
                running.remove(sequence)
                self._cache.leave(sequence.cached)
                finished.append(sequence)
                self._listener.left(sequence)
        return sorted(finished, key=lambda s: s.index)

    def _admit(self, waiting: deque[tuple[int, Request]], running: list[Sequence]) -> None:
        while waiting and len(running) < self._max_running and self._cache.can_join(waiting[0][1].max_length):
            index, request = waiting.popleft()
            running.append(Sequence(index, request, self._cache.join(request.max_length)))
            self._listener.joined(running[-1])
        if not running:
            raise RuntimeError("the cache is too small for the next request alone")

    def _step(self, running: list[Sequence]) -> None:
        """One pass: the newest token of each decoding sequence, the next part of each other one's prompt."""
        began, attention_before = time.perf_counter(), self._model.attention_seconds
        batch = sorted(
            running, key=lambda s: not s.is_decoding
        )  # the operator wants the decoding ones in front
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
        self._listener.stepped(step)
        for sequence, token in zip(batch, newest.tolist(), strict=True):
            if not sequence.pending():
                sequence.produced.append(token)
                self._listener.produced(sequence, token)
