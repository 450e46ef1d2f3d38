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

from . import goals, report
from .peers import NAMES
from .session import busy_processors, compare
from .shape import parse_shape

SHAPES = "kv32768", "kv4096", "kv1024", "16xkv2048", "256on2048"
README_RESULTS = Path("bench/results/compare")  # what README.md shows
GOALS_HELP = "what goals of issue 5 are about, and whether they are reached; no files without --out or --name"


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
    parser.add_argument("--shapes", help=f"as kv32768,16xkv2048,512x512,512on4096 ({','.join(SHAPES)})")
    parser.add_argument("--peers", help=f"as quire,torch:f32 ({','.join(NAMES)})")
    parser.add_argument("--goals", action="store_true", help=GOALS_HELP)
    parser.add_argument("--threads", type=int, help="all processors of the machine; with --goals 2")
    parser.add_argument("--rounds", type=int, default=7)
    for name, value in (("heads", 32), ("kv-heads", 8), ("head-dim", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, help=f"directory ({README_RESULTS.parent})")
    parser.add_argument("--name", help=f"of the files ({README_RESULTS.name}; with --goals goals)")
    options = parser.parse_args()
    if options.threads is None:
        options.threads = goals.THREADS if options.goals else len(os.sched_getaffinity(0))
    return options


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def measured(options, shapes, variants):
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {
        "machine": machine_name(),
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["./dev", "compare", *sys.argv[1:]]),
        "load": os.getloadavg()[0],  # of others: before the first peer
        "busy": busy_processors(),
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
    result["busy"] = max(result["busy"], busy_processors())
    progress("")
    return result


def write_files(result, stem, text):
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text)
    if stem == README_RESULTS:
        readme = Path("README.md")
        readme.write_text(report.with_part(readme.read_text(), report.readme_part(result, stem.parent)))
    try:
        from plots.peers import draw
    except ImportError as error:
        sys.exit(f"compare: pictures were NOT DRAWN: {error}")
    draw(result, stem)


def main():
    options = parse_options()
    model = {name: getattr(options, name) for name in ("heads", "kv_heads", "head_dim")}
    shapes = options.shapes or (goals.SHAPE.name if options.goals else ",".join(SHAPES))
    try:
        shapes = [parse_shape(text, **model) for text in shapes.split(",")]
    except ValueError as error:
        sys.exit(f"compare: {error}")
    if options.goals and not options.peers:
        variants = goals.variants()
    else:
        variants = variants_of(options.peers or ",".join(NAMES))
    result = measured(options, shapes, variants)
    about_goals = goals.lines(result)
    name = options.name or ("goals" if options.goals else README_RESULTS.name)
    text = report.markdown(result, name, about_goals)
    print("\n".join([*report.head(result), *about_goals]) if options.goals else text)
    if not options.goals or options.name or options.out:
        write_files(result, (options.out or README_RESULTS.parent) / name, text)


if __name__ == "__main__":
    main()
