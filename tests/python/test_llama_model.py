"""An unmodified llama.cpp (of the wheel xllamacpp) with SmolLM2-135M, with and without quire-ggml."""

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


def chosen(answers):
    """Of each answer its tokens: [{id, logprob, top_logprobs: [{id, logprob}]}]."""
    return [answer["choices"][0]["logprobs"]["content"] for together in answers for answer in together]


def check_choices(ggml, quire, close, least):
    """The same tokens until two are about as likely: which of them is taken depends, for ggml too, on what
    else was in the batch. `close`: the difference allowed of natural logarithms of probabilities; `least`:
    tokens compared, in all answers together."""
    differences = []
    for a, b in zip(chosen(ggml), chosen(quire)):
        assert len(a) == len(b) > 20
        for one, other in zip(a, b):
            likely = {entry["id"]: entry["logprob"] for entry in [*one["top_logprobs"], one]}
            assert other["id"] in likely, (one, other)
            differences.append(abs(likely[other["id"]] - other["logprob"]))
            differences.append(abs(likely[other["id"]] - one["logprob"]))
            if one["id"] != other["id"]:
                break
    assert len(differences) >= 2 * least
    print(f"max {max(differences):.3f} mean {np.mean(differences):.3f} of {len(differences)}")
    assert max(differences) < close and np.mean(differences) < close / 2, sorted(differences)[-5:]


@needs_llama
def test_same_words(tmp_path):
    request = {"prompt": STORY * 6 + "On the third day", "max_tokens": 64, "logprobs": 5}
    ggml, quire = ask_both(tmp_path, [[request]])
    check_choices(ggml, quire, 0.8, 64)
    assert texts(quire) == texts(ggml)


@needs_llama
@pytest.mark.parametrize("cache", ["q8_0", "q4_0"])
def test_quantised_caches(tmp_path, cache):
    """ggml rounds the query to 8 bits and quire less: the words are the same until one is a close call."""
    ends = ("On the third day", "The keeper", "One evening a boat", "In the morning")
    requests = [{"prompt": STORY * 6 + end, "max_tokens": 64, "logprobs": 5} for end in ends]
    both = ask_both(tmp_path, [[request] for request in requests], cache=cache)
    check_choices(*both, {"q8_0": 0.8, "q4_0": 2}[cache], 4)


@needs_llama
@pytest.mark.parametrize("unified", [True, False])
def test_parallel_slots(tmp_path, unified):
    """Four sequences decode at once: rows of one cache with a mask that tells them apart, or streams."""
    prompts = [STORY * 4 + end for end in ("The fifth boat", "The wind", "His sister", "A storm")]
    requests = [{"prompt": prompt, "max_tokens": 40, "logprobs": 5} for prompt in prompts]
    both = ask_both(tmp_path, [requests], slots=4, context=4096, parameters={"kv_unified": unified})
    check_choices(*both, 0.8, 20)


@needs_llama
def test_context_shift(tmp_path):
    """Generating past the context drops the oldest tokens and moves the others."""
    request = {"prompt": STORY * 4, "max_tokens": 160, "logprobs": 5}
    ggml, quire = ask_both(tmp_path, [[request]], context=320, parameters={"ctx_shift": True})
    assert quire[0][0]["usage"]["completion_tokens"] == 160
    check_choices(ggml, quire, 0.8, 20)


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
