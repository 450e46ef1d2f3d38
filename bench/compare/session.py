"""All peers with all their formats on one shape: each checked, then timed in turns."""

import contextlib
import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .shape import reference

PACKAGE_DIRECTORY = Path(__file__).resolve().parent.parent
SETTLE_SECONDS = 0.05  # threads that wait by spinning go to sleep


class Process:
    """A worker, see worker.py."""

    def __init__(self, peer, variant, threads):
        self.peer, self.variant = peer, variant
        python = sys.executable if peer == "quire" else os.environ.get("PEERS_PYTHON", sys.executable)
        command = [python, "-m", f"{__package__}.worker", peer, variant, str(threads)]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE_DIRECTORY), "OMP_NUM_THREADS": str(threads)},
        )

    def ask(self, **request):
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        self.log.seek(0)
        said = self.log.read().strip().splitlines()
        code = self.process.wait()
        last = re.sub(r"/[\w./-]+/", "", said[-1])[:150] if said else "without a word"
        return {"failed": f"ended with exit code {code}: {last}"}

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # it ended already
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def busy_processors(seconds=0.5):
    """How many processors all programs together keep busy, while no worker runs: those of others."""

    def ticks():
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
        return user + nice + system + sum(interrupts)

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def set_up(shape, variants, threads, exact, progress):
    """(process, row of the table) of each variant; without a process where it failed."""
    started = []
    for peer, variant in variants:
        progress(f"{shape.name}: {peer} {variant}")
        process = Process(peer, variant, threads)
        row = {"peer": peer, "variant": variant}
        row |= process.ask(do="setup", shape=dataclasses.asdict(shape), exact=exact)
        if "failed" in row:
            process.close()
            process = None
        started.append((process, row))
    return started


def time_in_turns(started, rounds, progress):
    """Bursts of runs, each round in another order, so that what else the machine does meets all alike."""
    turns = [(process, row) for process, row in started if process]
    order = random.Random(0)
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        order.shuffle(turns)
        for process, row in turns:
            if "failed" in row:
                continue
            time.sleep(SETTLE_SECONDS)
            answer = process.ask(do="burst")
            row.setdefault("times", []).extend(answer.get("times", []))
            if "failed" in answer:
                row["failed"] = answer["failed"]


def summarise(shape, row):
    times = sorted(row.pop("times", []))
    if "failed" in row or not times:
        return row
    median = statistics.median(times)
    low, high = (times[int(share * (len(times) - 1))] for share in (0.25, 0.75))
    row |= {"time_ms": median * 1e3, "time_min_ms": times[0] * 1e3, "spread": (high - low) / median}
    row |= {"cache_gb_per_s": row["cache_bytes"] / median / 1e9, "gflop_per_s": shape.flops / median / 1e9}
    return row | {"runs": len(times)}


def compare(shape, variants, threads, rounds, progress):
    """Rows of the shape's table."""
    progress(f"{shape.name}: float64")
    with tempfile.TemporaryDirectory() as directory:
        exact = str(Path(directory, "exact.npy"))
        np.save(exact, reference(shape))
        started = set_up(shape, variants, threads, exact, progress)
        try:
            time_in_turns(started, rounds, progress)
        finally:
            for process, _ in started:
                if process:
                    process.close()
    return [summarise(shape, row) for _, row in started]
