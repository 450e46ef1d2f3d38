"""quire beside other implementations of attention on CPUs: `./dev compare`."""

import argparse
import dataclasses
import datetime
import importlib
import json
import os
import shlex
import sys
from pathlib import Path

from . import report
from .peers import NAMES
from .session import compare
from .shape import parse_shape

SHAPES = "kv32768", "kv4096", "kv1024", "16xkv2048", "256on2048"
README_RESULTS = Path("bench/results/compare")  # what README.md shows


def machine_name():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown processor"
    )
    return f"{model}, {len(os.sched_getaffinity(0))} processors"


def variants_of(names):
    """(peer, variant) of "quire,torch:f32", all variants of a peer where none is named."""
    found = []
    for name in names.split(","):
        peer, _, variant = name.partition(":")
        if peer not in NAMES:
            sys.exit(f"compare: --peers has {peer!r}: must be one of {', '.join(NAMES)}")
        module = importlib.import_module(f".peers.{NAMES[peer]}", __package__)
        if variant and variant not in module.VARIANTS:
            sys.exit(f"compare: --peers has {name!r}: must be one of {', '.join(module.VARIANTS)}")
        found += [(peer, one) for one in ([variant] if variant else module.VARIANTS)]
    return found


def parse_options():
    parser = argparse.ArgumentParser(prog="./dev compare", description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="as kv32768,16xkv2048,512x512,512on4096")
    parser.add_argument("--peers", default=",".join(NAMES), help="as quire,torch:f32 (%(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    for name, value in (("heads", 32), ("kv-heads", 8), ("head-dim", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="directory (%(default)s)")
    parser.add_argument("--name", default="compare", help="of the files (%(default)s)")
    return parser.parse_args()


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def main():
    options = parse_options()
    model = {name: getattr(options, name) for name in ("heads", "kv_heads", "head_dim")}
    try:
        shapes = [parse_shape(text, **model) for text in options.shapes.split(",")]
    except ValueError as error:
        sys.exit(f"compare: {error}")
    variants = variants_of(options.peers)
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {
        "machine": machine_name(),
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["./dev", "compare", *sys.argv[1:]]),
        "load": os.getloadavg()[0],  # of others: before the first peer
        "threads": options.threads,
        "versions": {},
        "shapes": [],
    }
    for shape in shapes:
        rows = compare(shape, variants, options.threads, options.rounds, progress)
        result["shapes"].append({**dataclasses.asdict(shape), "rows": rows})
        for row in rows:
            if version := row.pop("version", ""):
                result["versions"][row["peer"]] = version
    progress("")
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / options.name
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result, options.name)
    stem.with_suffix(".md").write_text(text)
    print(text)
    if stem == README_RESULTS:
        readme = Path("README.md")
        readme.write_text(report.with_part(readme.read_text(), report.readme_part(result, options.out)))
    try:
        from plots.peers import draw
    except ImportError as error:
        sys.exit(f"compare: pictures were NOT DRAWN: {error}")
    draw(result, stem)


if __name__ == "__main__":
    main()
