"""./dev compare and ./dev plots: exact results, tables with peers that fail, and that pictures are drawn."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from compare import goals, report, shape  # noqa: E402


def run(module, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "bench"), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_shapes():
    assert shape.parse_shape("16xkv2048") == shape.Shape("16xkv2048", 16, 1, 2048)
    assert shape.parse_shape("512x512") == shape.Shape("512x512", 1, 512, 512)
    assert shape.parse_shape("512on4096", heads=8).kv_len == 4608
    assert shape.parse_shape("2on1").flops == 4 * 32 * 128 * (2 + 3)
    for text in ("kv", "512x256", "decode"):
        with pytest.raises(ValueError, match="must be as kv32768"):
            shape.parse_shape(text)


def test_reference():
    of = shape.parse_shape("3on2", heads=4, kv_heads=2, head_dim=8)
    q, k, v = (x[0].astype(np.float64) for x in shape.inputs(of))
    exact = shape.reference(of)
    for i in range(3):
        for h in range(4):
            scores = [q[i, h] @ k[t, h // 2] / np.sqrt(8) for t in range(2 + i + 1)]
            p = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(exact[0, i, h], p @ v[: len(p), h // 2], rtol=1e-12)
    assert shape.relative_error(exact, exact) == 0
    assert shape.relative_error(exact * 1.01, exact) == pytest.approx(0.01)


def test_session(tmp_path):
    """A peer that is not installed is a row that says so."""
    peers = "quire:f32,quire:int8,torch:f32"
    done = run(
        *("compare", "--peers", peers, "--shapes", "kv64,2on30", "--rounds", "1", "--threads", "1"),
        *("--out", str(tmp_path), "--name", "small"),
        PEERS_PYTHON="/usr/bin/false",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "small.json").read_text())
    assert result["versions"].keys() == {"quire"}
    for one in result["shapes"]:
        single, int8, torch = one["rows"]
        assert single["error"] < 1e-5 < 1e-3 < int8["error"] < 0.05
        assert single["time_min_ms"] <= single["time_ms"] and single["runs"] >= 3
        assert "ended with exit code 1" in torch["failed"]
    text = (tmp_path / "small.md").read_text()
    assert text in done.stdout
    assert text.count("| torch f32 | failed |") == 2
    assert {path.name for path in tmp_path.glob("*.png")} == {"small_light.png", "small_dark.png"}


def test_ik_llama(tmp_path):
    """Where it was not built, its rows say so and name what may be given."""
    done = run(
        *("compare", "--peers", "quire:f32,ik_llama.cpp:q8_0", "--shapes", "kv32", "--rounds", "1"),
        *("--threads", "1", "--out", str(tmp_path), "--name", "small"),
        PEERS_IK_LLAMA=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "small.json").read_text())["shapes"][0]["rows"][1]
    assert "its libggml.so was not built (QUIRE_IK_LLAMA names a checkout of it)" in row["failed"]
    assert "## Goals" not in done.stdout


def test_goals_alone():
    """Peers that are not there leave goals unmeasured; nothing is written, not even into README.md."""
    before = (ROOT / "README.md").read_bytes()
    peers = "quire:int8,openvino:u8"
    done = run("compare", "--goals", "--peers", peers, "--rounds", "1", PEERS_PYTHON="/usr/bin/false")
    assert done.returncode == 0, done.stderr
    said = "not measured: openvino u8: ended with exit code 1: without a word"
    assert f"| >= 3.00 x |  | {said} | quire int8: " in done.stdout
    assert "# Peers side by side" not in done.stdout
    assert (ROOT / "README.md").read_bytes() == before


def goal_row(peer, variant, time=None, note="", **fields):
    measured = {"time_ms": time, "error": 0.01, "note": note} if time else {}
    return {"peer": peer, "variant": variant, **measured, **fields}


def lines_of(*rows, about=goals.SHAPE, busy=0):
    lines = goals.lines(
        {"threads": 2, "busy": busy, "shapes": [{**dataclasses.asdict(about), "rows": list(rows)}]}
    )
    return [line for line in lines if line.startswith("| >=")]


def test_goals():
    reached = lines_of(
        goal_row("quire", "int8, medium", 0.1, "a target; pages of 128"),
        goal_row("quire", "int4, medium", 0.1, "a target; pages of 128; runs as high"),
        goal_row("ik_llama.cpp", "q8_0", 0.2196),
        goal_row("ik_llama.cpp", "q4_0", 0.25),
        goal_row("torch", "f32", 0.01),
    )
    beside = "| quire int8, medium: 0.100 ms, error 1 % | ik_llama.cpp q8_0: 0.220 ms, error 1 % |"
    assert reached[0] == f"| >= 2.20 x | 2.20 x | reached {beside}"
    assert reached[1].startswith(
        "| >= 3.00 x | 2.50 x | missed by 0.50 x (runs as high) | quire int4, medium"
    )
    assert len(reached) == 2


def test_goals_on_a_busy_machine():
    rows = goal_row("quire", "int8", 0.1), goal_row("openvino", "u8", 5)
    assert lines_of(*rows, busy=0.1)[0].startswith("| >= 3.00 x | 50.00 x | reached |")
    assert lines_of(*rows, busy=1)[0].startswith("| >= 3.00 x | 50.00 x | not judged: the machine was busy |")


def test_goals_without_a_side():
    """A side that failed says why, one that was not asked for is no line, and so is another shape."""
    single = goal_row("quire", "int4", 0.1)
    failed = goal_row("openvino", "u4", failed="ended with exit code 1")
    assert lines_of(single, failed) == [
        "| >= 3.00 x |  | not measured: openvino u4: ended with exit code 1 "
        "| quire int4: 0.100 ms, error 1 % | openvino u4: failed |"
    ]
    refused = goal_row("quire", "int4", failed="NotImplementedError")
    (line,) = lines_of(refused, goal_row("openvino", "u4", 1))
    assert "| not measured: quire int4: NotImplementedError | quire int4: failed |" in line
    assert lines_of(single) == []
    assert lines_of(single, failed, about=shape.parse_shape("kv1024")) == []
    assert ("quire", "int4_b16, medium") in goals.variants() and ("openvino", "u8") in goals.variants()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--peers", "tensorflow"], "--peers has 'tensorflow': must be one of quire, torch"),
        (["--peers", "torch:int8"], "--peers has 'torch:int8': must be one of f32, bf16"),
        (["--shapes", "512x256"], "must be as kv32768"),
    ],
)
def test_wrong_options(arguments, message):
    done = run("compare", *arguments)
    assert done.returncode == 1 and message in done.stderr


def test_readme():
    readme = f"# quire\n{report.BEGIN}\nold\n{report.END}\nend\n"
    assert report.with_part(readme, "new") == f"# quire\n{report.BEGIN}\n\nnew\n\n{report.END}\nend\n"
    with pytest.raises(ValueError, match="has no place"):
        report.with_part("# quire", "new")
    assert report.with_part((ROOT / "README.md").read_text(), "new") != ""


def row(workload, **fields):
    lengths = dict(
        batch=1, query_len=1, kv_len=int(workload.split("/kv")[1].split("/")[0]), threads=int(workload[-1])
    )
    shares = dict(
        flops=1e8,
        bytes=1e7,
        gflop_per_s=30,
        time_ms=3.5,
        time_min_ms=3,
        precision="highest",
        runs_as="highest",
    )
    return {"workload": workload, **lengths, **shares, **fields}


HEAD = {"machine": "a machine", "date": "2026-01-02T03:04:05Z", "command": "quire_bench --cost $5"}
LIMIT = {"dram_read_gb_per_s": 20, "fma_gflop_per_s": 100}
RESULTS = {
    "formats": {"results": [row("decode/f32/kv32768/t2"), row("decode/int8_g32/kv32768/t2", gflop_per_s=60)]},
    "lengths": {"results": [row(f"decode/f32/kv{n}/t2", time_ms=n / 100) for n in (512, 1024, 4096)]},
    "threads": {"results": [row("decode/f32/kv4096/t1"), row("decode/f32/kv4096/t2", time_ms=2)]},
    "schedule": {
        "workload": "decode/f32/kv4096/t2",
        "threads": 2,
        "items": [dict(thread=i % 2, phase="attend", item=i, begin_us=i, end_us=i + 2) for i in range(4)],
    },
    "demo": {
        "model": "a model",
        "tokens": 100,
        "formats": [
            dict(name="f32", bytes_per_token=64, perplexity=9),
            dict(name="int8", bytes_per_token=32, perplexity=9.1),
        ],
    },
}


def test_pictures(tmp_path):
    done = run("plots", "--results", str(tmp_path))
    assert done.returncode == 1 and "has no results: ./dev plots --measure makes them" in done.stderr
    for name, result in RESULTS.items():
        text = json.dumps({**HEAD, "limits": {"t1": LIMIT, "t2": LIMIT}, **result})
        (tmp_path / f"{name}.json").write_text(text)
    done = run("plots", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "compare.json is not there: compare was NOT DRAWN" in done.stdout
    drawn = {path.name for path in tmp_path.glob("*.png")}
    names = ("roofline", "lengths", "threads", "schedule", "demo")
    assert drawn == {f"{name}_{theme}.png" for name in names for theme in ("light", "dark")}
    assert all(path.stat().st_size > 10000 for path in tmp_path.glob("*.png"))
