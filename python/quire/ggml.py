"""Runs a program whose ggml (llama.cpp and what is built on it) is to compute its attention by quire.

quire-ggml COMMAND [ARGUMENT...]   runs it with libquire_ggml.so loaded first
quire-ggml --library               prints the path of that library, for LD_PRELOAD

QUIRE_VERBOSE=1 tells at the end what was computed by quire and what was not, and why. docs/llama.cpp.md
"""

import os
import sys
from pathlib import Path

LIBRARY = Path(__file__).with_name("libquire_ggml.so")


def preloading(environment):
    """The environment with the library loaded before what it already preloads."""
    others = environment.get("LD_PRELOAD", "")
    return {**environment, "LD_PRELOAD": f"{LIBRARY} {others}".strip()}


def main():
    arguments = sys.argv[1:]
    if arguments == ["--library"]:
        print(LIBRARY)
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if not LIBRARY.exists():
        print(f"quire-ggml: {LIBRARY} is missing: quire was built without QUIRE_GGML", file=sys.stderr)
        return 1
    try:
        os.execvpe(arguments[0], arguments, preloading(os.environ))
    except OSError as error:
        print(f"quire-ggml: {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
