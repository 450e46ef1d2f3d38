"""quire_bench: what it says of the command line, and the files that it writes. No time is judged."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "build/release/quire_bench"
SCHEDULE = PROGRAM.with_name("quire_schedule")
pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason=f"{PROGRAM} IS NOT BUILT: quire_bench not tested"
)

SMALL = "--kv-len 64 --threads 1 --warm 1 --benchmark_min_time=0.001".split()
FIELDS = """workload query_len kv_len heads kv_heads head_dim cache group layout page_size threads target
    precision time_ms cache_gb_per_s gflop_per_s dram_share peak_share roofline_share""".split()


def bench(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


def names(*arguments):
    done = bench("--list", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--heads", "30"], "num_kv_heads is 8: must divide num_heads, 30"),
        (["--kv-len", "1000m"], "of memory; "),
        (["--kv-len", "8", "--query-len", "9"], "--kv-len is 8: must be at least --query-len, which is 9"),
        (["--group", "48"], "quant_group is 48: must divide the head size, 128"),
        (["--cache", "int9"], '--cache is "int9": must be one of f32, f16'),
        (["--head-dim", "2000"], "head_dim is 2000: must be 1 to 1024"),
        (["--threads", "1000"], "--threads is 1000: must be at most"),
        (["--sweep", "depth=1"], '--sweep is "depth=1": must be NAME=VALUES, NAME one of op, heads'),
        (["--sweep", "kv-len=4k..1k"], "must be FROM..TO (doubled) or FROM..TO+STEP"),
        (["--op", "append", "--cache", "q8_0"], "quire_append does not store them"),
        (["--depth", "1"], "unknown; --help lists the options"),
        (["decode/int9"], "no named workload matches"),
        (["decode/("], "must be a regular expression"),
        # Before the first one is run.
        (["--sweep", "group=32..48+16", "--kv-len", "64"], "kv64/t"),
    ],
)
def test_impossible(arguments, message):
    done = bench(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("quire_bench: ") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_names():
    every = names()
    assert len(set(every)) == len(every) > 100
    assert names("decode/int8_g32/kv32768/t1") == ["decode/int8_g32/kv32768/t1"]
    assert names("--benchmark_filter=decode/int8_g8/kv1024") == ["decode/int8_g8/kv1024/t1/warm"]
    one = ["--cache", "f16", "--threads", "1"]
    assert names(*one, "--kv-len", "1k..5k") == [f"decode/f16/kv{n}/t1" for n in (1024, 2048, 4096, 5120)]
    swept = names(*one, "--sweep", "query-len=1..5+2", "--sweep", "layout=0,3", "--kv-len", "8")
    assert swept == [
        f"{shape}{layout}/t1"
        for shape in ("decode/f16/kv8", "prefill/f16/3on5", "prefill/f16/5on3")
        for layout in ("/l0", "")
    ]
    # Sizes change named workloads, and those that become the same are run once.
    assert names("decode/(f32|f16)/kv4096/t1", "--cache", "int4", "--page-size", "0") == [
        "decode/int4_g32/kv4096/p0/t1"
    ]


def test_json(tmp_path):
    done = bench(
        "--json",
        tmp_path / "out.json",
        "--csv",
        tmp_path / "out.csv",
        "--cache",
        "int8,q4_0",
        *SMALL,
        "--model",
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "workload",
        "decode/int8_g32/kv64/t1/warm",
        "decode/q4_0/kv64/t1/warm",
    ]
    written = json.loads((tmp_path / "out.json").read_text())
    assert {"machine", "limits", "results"} <= set(written)
    assert written["limits"]["t1"]["dram_read_gb_per_s"] > 0
    rows = written["results"]
    assert [row["cache"] for row in rows] == ["int8", "q4_0"]
    for row in rows:
        assert set(FIELDS) <= set(row)
        assert row["time_min_ms"] <= row["time_ms"]
        assert row["flops"] == 4 * 32 * 128 * 64
        limits = [v for v in (row["dram_share"], row["peak_share"]) if v is not None]
        assert row["roofline_share"] >= 0.99 * max(limits)  # its bytes are also those of query and output
    assert rows[0]["bytes"] == 64 * 8 * 2 * (128 + 8) + 2 * 32 * 128 * 4
    with (tmp_path / "out.csv").open() as file:
        assert [row["workload"] for row in csv.DictReader(file)] == [row["workload"] for row in rows]


@pytest.mark.parametrize("layout", range(4))
@pytest.mark.parametrize("page_size", [0, 16])
def test_layouts_and_operators(layout, page_size):
    for op in ("attention", "append"):
        done = bench(
            *[
                "--op",
                op,
                "--layout",
                str(layout),
                "--page-size",
                str(page_size),
                "--batch",
                "2",
                "--query-len",
                "3",
            ],
            *["--csv", "-", "--scale-type", "f32", "--type", "f16", *SMALL],
        )
        assert done.returncode == 0, done.stderr
        row = next(csv.DictReader(done.stdout.splitlines()))
        assert (row["layout"], row["page_size"], row["batch"]) == (str(layout), str(page_size), "2")
        assert (row["memcpy_share"] != "") == (op == "append")


def test_unwritable():
    done = bench("--json", "/nonexistent/out.json", *SMALL)
    assert done.returncode == 1
    assert "can't write /nonexistent/out.json" in done.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_schedule(threads):
    """Every work item of a call is run once, and no thread runs two at a time."""
    if threads > (os.cpu_count() or 1):
        pytest.skip(f"this machine has fewer than {threads} processors")
    shape = ["--kv-len", "4096", "--threads", str(threads), "--warm", "1", "--cache", "f32"]
    done = subprocess.run([SCHEDULE, *shape], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["workload"] == f"decode/f32/kv4096/t{threads}/warm" and result["threads"] == threads
    attended = sorted(item["item"] for item in result["items"] if item["phase"] == "attend")
    assert attended and attended == list(range(len(attended)))
    for thread in range(threads):
        spans = [(i["begin_us"], i["end_us"]) for i in result["items"] if i["thread"] == thread]
        assert spans == sorted(spans)
        assert all(begin >= end for (_, end), (begin, _) in zip(spans, spans[1:]))
    several = subprocess.run([SCHEDULE, *shape, "--batch", "1,2"], capture_output=True, text=True)
    assert several.returncode == 2 and "2 workloads: must be one" in several.stderr
