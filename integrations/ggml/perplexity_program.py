"""Logarithms of the probabilities of a text's tokens in an unmodified llama.cpp; imports nothing of quire.

python perplexity_program.py CACHE TOKENS TEXT LOGARITHMS.json

The server tells the probability of a token that it generates, not of one in a prompt. So every token of the
text is asked for with a bias that forces it, out of the cache that holds the ones before.
"""

import json
import sys
import urllib.request
from pathlib import Path

import llama_program
import xllamacpp

FORCED = 1000.0  # added to a logit; the probability is told as without it


def tokens_of(server, text):
    request = urllib.request.Request(
        server.listening_address + "/tokenize",
        json.dumps({"content": text}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def logarithm(server, before, token):
    """Of the probability of the token after those before."""
    wanted = {"prompt": before, "max_tokens": 1, "logprobs": 1, "logit_bias": [[token, FORCED]]}
    found = llama_program.answer(server, wanted | {"cache_prompt": True})
    entry = found["choices"][0]["logprobs"]["content"][0]
    if entry["id"] != token:
        raise RuntimeError(f"after {len(before)} tokens the server chose {entry['id']}, forced was {token}")
    return entry["logprob"]


def main():
    cache, count, text, found = sys.argv[1:]
    server = xllamacpp.Server(
        llama_program.parameters({"cache": cache, "context": int(count) + 200, "threads": 1})
    )
    tokens = tokens_of(server, Path(text).read_text(encoding="utf-8"))[: int(count)]
    logarithms = [logarithm(server, tokens[:i], tokens[i]) for i in range(1, len(tokens))]
    Path(found).write_text(json.dumps(logarithms))


if __name__ == "__main__":
    main()
