"""The example that runs SmolLM2: its cache bookkeeping and scheduler, with a tiny model of random weights."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from smollm2_support import needs, produced

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from examples.smollm2.cache_format import FORMATS  # noqa: E402
from examples.smollm2.paged_cache import NO_PAGE, PagedCache, PagePool  # noqa: E402
from examples.smollm2.parameters import Hyperparameters, Layer, Weights  # noqa: E402

TINY = Hyperparameters(
    num_layer=2,
    hidden=48,
    feed_forward=64,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    vocabulary=61,
    context=200,
    rope_base=10000.0,
    norm_epsilon=1e-5,
)


# ---- the cache ---------------------------------------------------------------------------------------------


def test_pool_hands_out_every_page_once_and_not_in_order():
    pool = PagePool(50, page_size=16)
    pages = [pool.take() for _ in range(50)]
    assert sorted(pages) == list(range(0, 800, 16)) and pages != sorted(pages)
    assert len(pool) == 0
    with pytest.raises(IndexError):
        pool.take()
    pool.give_back(pages[:3])
    assert sorted(pool.take() for _ in range(3)) == sorted(pages[:3])


def test_sequences_never_share_a_page_and_give_all_back():
    cache = PagedCache(FORMATS["int8"], TINY, num_pages=40, page_size=4, quant_group=8)
    rng = np.random.default_rng(3)
    running, longest = [], {}
    for _ in range(600):
        length = int(rng.integers(1, 60))
        if cache.can_join(length):
            running.append(cache.join(length))
            longest[id(running[-1])] = length
        growing = [s for s in running if s.length < longest[id(s)] and rng.random() < 0.7]
        if growing:
            cache.grow(growing, [int(rng.integers(1, longest[id(s)] - s.length + 1)) for s in growing], 0)
        if rng.random() < 0.3:
            cache.leave(running.pop(int(rng.integers(len(running)))))
        pages = [page for s in running for page in s.pages]
        assert len(set(pages)) == len(pages) == cache.used_pages
        assert all(len(s.pages) == cache.pages_for(s.length) for s in running)
    for sequence in running:
        cache.leave(sequence)
    assert cache.used_pages == 0 and cache.can_join(40 * 4) and not cache.can_join(40 * 4 + 1)


def test_a_joined_sequence_keeps_its_promised_pages():
    cache = PagedCache(FORMATS["f32"], TINY, num_pages=5, page_size=4)
    first = cache.join(12)
    assert not cache.can_join(9)
    with pytest.raises(RuntimeError, match="no 3 pages left for a sequence of 9 tokens"):
        cache.join(9)
    second = cache.join(8)
    cache.grow([first, second], [12, 8], 0)
    with pytest.raises(RuntimeError, match="promised 3 pages needs 4"):
        cache.grow([first], [1], 1)


def test_index_tensors_of_a_mixed_batch():
    cache = PagedCache(FORMATS["f32"], TINY, num_pages=9, page_size=4)
    decoding, prefilling = cache.join(8), cache.join(9)
    cache.grow([decoding], [6], 0)
    batch = cache.grow([decoding, prefilling], [1, 9], num_decoding=1)
    assert batch.seqstarts.tolist() == [0, 1, 10]
    assert batch.kvstarts.tolist() == [0, 7, 16]
    assert batch.start_pos.tolist() == [6, 0]
    assert batch.cachestarts.tolist() == [[*decoding.pages, NO_PAGE], prefilling.pages]
    assert (batch.decoding_batches, batch.max_seqlen, batch.max_kvlen) == (1, 9, 9)
    assert batch.positions().tolist() == [6, *range(9)]
    assert {a.dtype for a in (batch.seqstarts, batch.kvstarts, batch.start_pos, batch.cachestarts)} == {
        np.dtype(np.int64)
    }


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_per_token_are_those_of_the_arrays(name):
    cache = PagedCache(FORMATS[name], TINY, num_pages=3, page_size=16, quant_group=4)
    total = cache.cache.nbytes + (0 if cache.scale is None else cache.scale.nbytes)
    assert cache.bytes_per_token * 48 == total


# The same codes and scales, elsewhere: the same numbers but for the order of float32 sums.
@pytest.mark.parametrize("name", ["int8", "int4", "int4r"])
def test_blocks_of_tokens_answer_as_rows_do(name):
    rng = np.random.default_rng(3)
    steps = [[(20, 20), (3, 3)], [(21, 1), (4, 1)], [(40, 19), (5, 1)]]
    made = [
        PagedCache(FORMATS[name], TINY, num_pages=6, page_size=16, quant_group=8, blocks=blocks)
        for blocks in (False, True)
    ]
    assert made[1].scale is None and made[1].bytes_per_token * 96 == made[1].cache.nbytes
    joined = [[cache.join(40), cache.join(10)] for cache in made]
    for step in steps:
        counts = [new for _, new in step]
        n = sum(counts)
        query = rng.normal(size=(n, TINY.num_heads, TINY.head_dim)).astype(np.float32)
        key, value = (
            rng.normal(size=(n, TINY.num_kv_heads, TINY.head_dim)).astype(np.float32) for _ in range(2)
        )
        rows, blocks = (
            cache.attend(cache.grow(sequences, counts, 0), 1, query, key, value)
            for cache, sequences in zip(made, joined, strict=True)
        )
        np.testing.assert_allclose(blocks, rows, rtol=1e-5, atol=1e-5)


# ---- the scheduler, with a tiny model ----------------------------------------------------------------------


def tiny_model():
    needs("threadpoolctl")
    from examples.smollm2.model import Llama

    rng = np.random.default_rng(5)

    def matrix(*shape):
        # Strong layers: else a tied embedding makes every token follow itself.
        return rng.normal(size=shape, scale=3 * shape[0] ** -0.5).astype(np.float32)

    ones = np.ones(TINY.hidden, np.float32)
    width = (TINY.num_heads + 2 * TINY.num_kv_heads) * TINY.head_dim
    layers = [
        Layer(
            attention_norm=ones,
            qkv=matrix(TINY.hidden, width),
            attention_output=matrix(TINY.hidden, TINY.hidden),
            feed_forward_norm=ones,
            gate_up=matrix(TINY.hidden, 2 * TINY.feed_forward),
            down=matrix(TINY.feed_forward, TINY.hidden),
        )
        for _ in range(TINY.num_layer)
    ]
    return Llama(TINY, Weights(matrix(TINY.vocabulary, TINY.hidden), tuple(layers), ones))


def tiny_cache(name="f32", num_pages=40, page_size=7):
    return PagedCache(FORMATS[name], TINY, num_pages=num_pages, page_size=page_size, quant_group=4)


def tiny_requests():
    from examples.smollm2.engine import Request

    rng = np.random.default_rng(8)
    lengths = [(3, 20), (30, 5), (11, 11), (1, 30), (60, 1), (25, 9)]
    return [Request(rng.integers(TINY.vocabulary, size=n).tolist(), new) for n, new in lengths]


@pytest.mark.parametrize("name", FORMATS)
def test_batched_answers_are_those_given_alone(name, monkeypatch):
    model = tiny_model()
    from examples.smollm2 import engine

    # Small chunks: prompts are read in several steps, beside sequences that decode already.
    monkeypatch.setattr(engine, "PREFILL_TOKENS", 8)
    requests = tiny_requests()
    alone = [produced(model, tiny_cache(name), [request], max_running=1)[0] for request in requests]
    cache = tiny_cache(name)
    together = engine.Engine(model, cache, requests, max_running=3)
    assert [sequence.produced for sequence in together.run()] == alone
    assert len(set(alone[3])) > 5  # no model that says one word over and over
    assert [len(tokens) for tokens in alone] == [request.max_new_tokens for request in requests]
    assert any(step.decoded and step.prefilled for step in together.steps)
    assert cache.used_pages == 0


def test_sequences_wait_for_pages_and_stop_at_a_stop_token():
    model = tiny_model()
    from examples.smollm2.engine import Listener, Request

    class Log(Listener):
        running, most = 0, 0

        def joined(self, sequence):
            self.running += 1
            self.most = max(self.most, self.running)

        def left(self, sequence):
            self.running -= 1

    log = Log()
    cache = tiny_cache(num_pages=8, page_size=4)  # two sequences of 16 tokens
    requests = [Request([n], 16) for n in range(5)]
    tokens = produced(model, cache, requests, max_running=9, listener=log)[0]
    assert log.most == 2 and log.running == 0
    stop = tokens[7]
    stopped = produced(model, cache, [Request([0], 16, frozenset([stop]))])
    assert stopped == [tokens[: tokens.index(stop) + 1]]
    with pytest.raises(RuntimeError, match="too small"):
        produced(model, cache, [Request([1], 40)])


def test_what_others_left_in_the_cache_has_no_effect():
    model = tiny_model()
    clean = produced(model, tiny_cache(), tiny_requests())
    cache = tiny_cache()
    cache.cache.fill(np.nan)
    assert produced(model, cache, tiny_requests()) == clean


def test_reading_in_chunks_is_reading_at_once():
    model = tiny_model()
    from examples.smollm2.cached_model import CachedModel

    tokens = np.random.default_rng(2).integers(TINY.vocabulary, size=50).tolist()
    logits = []
    for size in (50, 16, 1):
        cache = tiny_cache()
        cached_model, sequence = CachedModel(model, cache), cache.join(50)
        chunks = [tokens[i : i + size] for i in range(0, 50, size)]
        parts = [cached_model.extend([sequence], [c], logit_rows=np.arange(len(c))) for c in chunks]
        logits.append(np.concatenate(parts))
        assert cached_model.attention_seconds > 0
    np.testing.assert_allclose(logits[1], logits[0], atol=2e-4)
    np.testing.assert_allclose(logits[2], logits[0], atol=2e-4)


def test_comparison_of_the_formats(monkeypatch):
    needs("rich", "jinja2", "tokenizers", "gguf", "threadpoolctl")
    from rich.console import Console

    from examples.smollm2 import measure
    from examples.smollm2.progress_view import ProgressView

    class Tokenizer:
        def encode(self, text):
            return [ord(character) % TINY.vocabulary for character in text]

        encode_chat = encode

    monkeypatch.setattr(measure, "CHUNK_TOKENS", 32)
    monkeypatch.setattr(measure, "CONTINUED_TEXT_TOKENS", (20, 90))
    context = 120

    def make_cache(name, lengths):
        assert max(lengths) <= context
        return tiny_cache(name, num_pages=sum(-(-length // 7) for length in lengths))

    with open(os.devnull, "w") as nowhere, ProgressView(Console(file=nowhere)) as progress:
        scores = measure.compare_formats(tiny_model(), Tokenizer(), make_cache, context, progress)
    assert [score.name for score in scores] == list(FORMATS)
    assert all(score.text.predicted == context - 1 for score in scores)
    f32, f16, int8, int4, _ = (score.text for score in scores)
    assert f32.logit_difference == 0 < f16.logit_difference < int8.logit_difference < int4.logit_difference
    assert abs(f16.perplexity / f32.perplexity - 1) < abs(int4.perplexity / f32.perplexity - 1)
    for score in scores:
        assert 0 < score.decoding.attention_share < 1 and score.decoding.tokens_per_second > 0
        assert [len(tokens) for tokens in score.decoding.continuations] == [64, 64, 64]
    assert scores[1].decoding.continuations[0][:5] == scores[0].decoding.continuations[0][:5]


def test_likelihood_is_that_of_a_softmax():
    needs("rich", "jinja2", "tokenizers", "gguf", "threadpoolctl")
    from examples.smollm2.measure import log_likelihood

    logits = np.log(np.array([[1, 2, 5], [3, 3, 2]], np.float32)) + 700
    assert log_likelihood(logits, np.array([2, 0])) == pytest.approx(np.log(5 / 8 * 3 / 8), abs=1e-4)
