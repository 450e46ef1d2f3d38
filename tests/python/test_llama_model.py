"""An unmodified llama.cpp (of the wheel xllamacpp) with SmolLM2-135M, with and without quire-ggml."""

import difflib
import json

import numpy as np
import pytest
from llama import ROOT, counts, needs_llama, run

FIRST_CALL = {"the first call, which shows how it is called": 1}
STORY = (
    "The lighthouse keeper counted the boats that came home every evening. On the first day of autumn there "
    "were seven of them, and on the second day there were six. He wrote the numbers into a book, next to the "
    "weather and the direction of the wind. "
)


def ask(directory, by_quire, completions, **wanted):
    """Answers of the program to lists of requests, each list sent at once."""
    requests, answers = directory / "requests.json", directory / f"answers{int(by_quire)}.json"
    requests.write_text(json.dumps({"context": 2048, "completions": completions, **wanted}))
    _, errors = run([ROOT / "integrations/ggml/llama_program.py", requests, answers], by_quire=by_quire)
    return json.loads(answers.read_text()), errors


def ask_both(directory, completions, **wanted):
    """Of ggml and of quire, which must have computed all but the first call."""
    ggml, printed = ask(directory, False, completions, **wanted)
    assert "quire" not in printed
    quire, printed = ask(directory, True, completions, **wanted)
    by_quire, by_ggml = counts(printed)
    assert by_quire > 29 and by_ggml == FIRST_CALL, printed
    return ggml, quire


def texts(answers):
    return [answer["choices"][0]["text"] for together in answers for answer in together]


def same_beginning(a, b):
    """Characters up to where two texts part: rounding decides between words that are about as likely."""
    return difflib.SequenceMatcher(None, a, b, autojunk=False).find_longest_match(0, len(a), 0, len(b)).size


@needs_llama
def test_same_words(tmp_path):
    request = {"prompt": STORY * 6 + "On the third day", "max_tokens": 64}
    ggml, quire = ask_both(tmp_path, [[request]])
    assert texts(quire) == texts(ggml)


@needs_llama
@pytest.mark.parametrize("cache", ["q8_0", "q4_0"])
def test_quantised_caches(tmp_path, cache):
    """ggml rounds the query to 8 bits and quire less: the words are the same until one is a close call."""
    request = {"prompt": STORY * 6 + "On the third day", "max_tokens": 64}
    ggml, quire = (texts(answers)[0] for answers in ask_both(tmp_path, [[request]], cache=cache))
    assert len(quire) > 100 and same_beginning(ggml, quire) >= 40, (ggml, quire)


@needs_llama
@pytest.mark.parametrize("unified", [True, False])
def test_parallel_slots(tmp_path, unified):
    """Four sequences decode at once: rows of one cache with a mask that tells them apart, or streams."""
    prompts = [STORY * 4 + end for end in ("The fifth boat", "The wind", "His sister", "A storm")]
    requests = [{"prompt": prompt, "max_tokens": 40} for prompt in prompts]
    ggml, quire = ask_both(tmp_path, [requests], slots=4, context=4096, parameters={"kv_unified": unified})
    for a, b in zip(texts(ggml), texts(quire)):
        assert len(b) > 60 and same_beginning(a, b) >= 40, (a, b)


@needs_llama
def test_context_shift(tmp_path):
    """Generating past the context drops the oldest tokens and moves the others."""
    request = {"prompt": STORY * 4, "max_tokens": 160}
    ggml, quire = ask_both(tmp_path, [[request]], context=320, parameters={"ctx_shift": True})
    (a,), (b,) = texts(ggml), texts(quire)
    assert quire[0][0]["usage"]["completion_tokens"] == 160
    assert same_beginning(a, b) >= 100, (a, b)


@needs_llama
def test_embeddings(tmp_path):
    """The mean over all tokens of what a model without a causal mask makes of them."""
    requests = [{"input": STORY * n} for n in (1, 3)]
    found = ask_both(tmp_path, [requests], embedding=True)
    for a, b in zip(
        *(np.array([x["data"][0]["embedding"] for together in f for x in together]) for f in found)
    ):
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert len(a) == 576 and cosine > 0.999  # layers round activations to 8 bits
