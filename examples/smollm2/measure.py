"""What a cache format costs and gains: perplexity over a fixed text, and the speed of decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .cache_format import FORMATS
from .cached_model import CachedModel
from .engine import Engine, Request
from .model import Llama
from .paged_cache import PagedCache
from .progress_view import ProgressView, Stage
from .tokenizer import ChatTokenizer

TEXT_FILE = Path(__file__).with_name("text.txt")
CHUNK_TOKENS = 256  # of the text in one pass; later chunks read the earlier ones back from the cache
CONTINUATION_TOKENS = 64
CONTINUED_PROMPT = "Why do we dream? Explain it to a child."
CONTINUED_TEXT_TOKENS = (256, 512, 1024)  # of the text, as longer contexts beside the prompt


@dataclass
class TextScore:
    """How well a text is predicted."""

    log_likelihood: float = 0.0
    predicted: int = 0  # tokens
    logit_difference: float = 0.0  # the largest absolute one to the reference

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.log_likelihood / self.predicted))


@dataclass(frozen=True)
class DecodingScore:
    tokens_per_second: float
    attention_share: float  # of the time of the steps, 0 to 1
    continuations: list[list[int]]  # greedy, of each sequence, CONTINUATION_TOKENS


@dataclass(frozen=True)
class FormatScore:
    """One row of the table."""

    name: str
    bytes_per_token: int
    text: TextScore
    decoding: DecodingScore


# (format name, lengths of the sequences it must hold at once, in tokens) -> an empty cache
MakeCache = Callable[[str, list[int]], PagedCache]


def compare_formats(
    model: Llama, tokenizer: ChatTokenizer, make_cache: MakeCache, context: int, progress: ProgressView
) -> list[FormatScore]:
    """Measures every format; no sequence is longer than context (tokens)."""
    text = tokenizer.encode(read_text())[:context]
    title = f"perplexity over {len(text)} tokens, {len(FORMATS)} formats"
    with progress.stage(title, len(text) * len(FORMATS)) as stage:
        texts = score_text(model, {name: make_cache(name, [len(text)]) for name in FORMATS}, text, stage)

    requests = decoding_requests(tokenizer.encode_chat(CONTINUED_PROMPT), text, context)
    lengths = [request.max_length for request in requests]
    caches = {name: make_cache(name, lengths) for name in FORMATS}
    title = f"decoding {len(requests)} sequences, {len(FORMATS)} formats"
    with progress.stage(title, sum(lengths) * len(FORMATS)) as stage:
        decodings = score_decoding(model, caches, requests, stage)
    return [
        FormatScore(name, cache.bytes_per_token, texts[name], decodings[name])
        for name, cache in caches.items()
    ]


def read_text() -> str:
    """The text that perplexity is measured over, without its first line, one line a paragraph."""
    _, _, text = TEXT_FILE.read_text(encoding="utf-8").partition("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def score_text(
    model: Llama, caches: dict[str, PagedCache], text: list[int], stage: Stage
) -> dict[str, TextScore]:
    """Perplexity of text (token ids) with each cache, and how far the logits are from those with the first.

    The formats go through the text side by side: the logits of a chunk are 50 MB, those of the text 500.
    """
    runs = {
        name: (CachedModel(model, cache), cache.join(len(text)), TextScore())
        for name, cache in caches.items()
    }
    for begin in range(0, len(text), CHUNK_TOKENS):
        chunk, targets = (
            text[begin : begin + CHUNK_TOKENS],
            np.array(text[begin + 1 : begin + CHUNK_TOKENS + 1]),
        )
        reference = None
        for cached_model, sequence, score in runs.values():
            logits = cached_model.extend([sequence], [chunk], logit_rows=np.arange(len(chunk)))
            reference = logits if reference is None else reference
            score.logit_difference = max(score.logit_difference, float(np.abs(logits - reference).max()))
            score.log_likelihood += log_likelihood(logits[: len(targets)], targets)
            score.predicted += len(targets)
            stage.advance(len(chunk))
    return {name: score for name, (_, _, score) in runs.items()}


def log_likelihood(logits: np.ndarray, targets: np.ndarray) -> float:
    """Sum over rows of the logarithm of the probability of targets [rows] under logits [rows, vocabulary]."""
    largest = logits.max(axis=-1, keepdims=True)
    log_total = largest[:, 0] + np.log(np.exp(logits - largest).sum(axis=-1))
    return float((logits[np.arange(len(targets)), targets] - log_total).sum(dtype=np.float64))


def decoding_requests(prompt: list[int], text: list[int], context: int) -> list[Request]:
    """A chat prompt and beginnings of the text; no stop tokens, so that all formats do the same work."""
    room = context - CONTINUATION_TOKENS
    beginnings = [text[: min(length, room)] for length in CONTINUED_TEXT_TOKENS]
    return [Request(tokens, CONTINUATION_TOKENS) for tokens in [prompt, *beginnings]]


def score_decoding(
    model: Llama, caches: dict[str, PagedCache], requests: list[Request], stage: Stage
) -> dict[str, DecodingScore]:
    """Speed of each cache while all sequences decode, and how they continue.

    The formats take turns step by step, so that what else the machine does meets all of them alike.
    """
    count = len(requests)
    engines = {name: Engine(model, cache, requests, max_running=count) for name, cache in caches.items()}
    while any(engine.is_busy for engine in engines.values()):
        for engine in engines.values():
            engine.step()
            stage.advance(engine.steps[-1].decoded + engine.steps[-1].prefilled)
    return {name: _decoding_score(engine, count) for name, engine in engines.items()}


def _decoding_score(engine: Engine, sequences: int) -> DecodingScore:
    steps = [step for step in engine.steps if step.decoded == sequences]
    # Medians: on a busy machine a few steps take many times as long.
    seconds = statistics.median(step.seconds for step in steps)
    attention_seconds = statistics.median(step.attention_seconds for step in steps)
    return DecodingScore(
        tokens_per_second=sequences / seconds,
        attention_share=attention_seconds / seconds,
        continuations=[sequence.produced for sequence in engine.finished],
    )
