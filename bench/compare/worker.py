"""One peer with one format of its cache, in a process of its own: told what to do by lines of JSON.

Threads of one library that wait by spinning would slow down the next one; and a library may crash.
"""

import argparse
import importlib
import json
import os
import re
import sys
import time
from importlib import metadata

import numpy as np

from .peers import NAMES
from .shape import Shape, inputs, relative_error

SECONDS = 0.15  # of a burst, of at least one run


def version_of(package):
    """Also of a wheel that was unpacked beside the environment."""
    path = [*sys.path, os.environ.get("PEERS_VLLM", ".")]
    return next((found.version for found in metadata.distributions(name=package, path=path)), "")


def message_of(error):
    """Type and text in a line, without the paths of whoever built the library."""
    lines = [line.strip() for line in str(error).splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("Exception from"))
    text = re.sub(r"( at)? ?/[\w./-]+(:\d+)?:?", "", text).replace("|", "/")
    return f"{type(error).__name__}: {text}"[:200]


class Worker:
    def __init__(self, peer, variant, threads):
        self.module = importlib.import_module(f".peers.{NAMES[peer]}", __package__)
        self.variant, self.threads = variant, threads

    def setup(self, shape, exact):
        shape = Shape(**shape)
        self.prepared = self.module.make(shape, self.variant, self.threads, *inputs(shape))
        self.prepared.run()
        error = relative_error(self.prepared.output(), np.load(exact))
        return {
            "error": error,
            "cache_bytes": self.prepared.cache_bytes,
            "note": self.prepared.note,
            "version": self.prepared.version or version_of(self.module.PACKAGE),
        }

    def burst(self):
        """Times of runs. The first run wakes threads and caches, unless it is long."""
        times, began = [], time.perf_counter()
        while not times or time.perf_counter() - began < SECONDS:
            start = time.perf_counter()
            self.prepared.run()
            times.append(time.perf_counter() - start)
        return {"times": times[1:] or times}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("variant")
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    # What libraries print must not come between the lines of JSON.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or Worker(arguments.peer, arguments.variant, arguments.threads)
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:  # whatever a library throws is a result
            answer = {"failed": message_of(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
