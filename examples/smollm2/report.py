"""The comparison of the cache formats as a table and as a picture."""

from __future__ import annotations

import datetime
import json
import os
import shlex
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as plt  # noqa: E402
from rich import box  # noqa: E402
from rich.table import Table  # noqa: E402

from .measure import CONTINUATION_TOKENS, FormatScore  # noqa: E402

DOT_COLOURS = ("#4c566a", "#2f7ebc", "#2a9d5c", "#d9822b", "#b0413e")


def same_tokens(tokens: list[int], expected: list[int]) -> int:
    """How many tokens are as expected before the first that is not."""
    pairs = enumerate(zip(tokens, expected, strict=True))
    return next((index for index, (token, other) in pairs if token != other), len(tokens))


def make_table(scores: list[FormatScore], title: str) -> Table:
    """One row a format; the first is what the others are compared to."""
    reference = scores[0]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True  # fits into 80 columns
    table.add_column("cache", no_wrap=True)
    numbers = ("bytes/\ntoken", "tokens/s", "time in\nattention", "perplexity", "", "largest\nlogit\ndiff.")
    for heading in (*numbers, f"{CONTINUATION_TOKENS} tokens\nas {reference.name}"):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in scores:
        table.add_row(
            score.name,
            f"{score.bytes_per_token:,}",
            f"{score.decoding.tokens_per_second:.1f}",
            f"{score.decoding.attention_share:.1%}",
            f"{score.text.perplexity:.3f}",
            *(() if score is reference else _differences(score, reference)),
        )
    return table


def _differences(score: FormatScore, reference: FormatScore) -> tuple[str, str, str]:
    change = score.text.perplexity / reference.text.perplexity - 1
    continuations = zip(score.decoding.continuations, reference.decoding.continuations, strict=True)
    same = [same_tokens(tokens, expected) for tokens, expected in continuations]
    everywhere = all(count == len(tokens) for count, tokens in zip(same, reference.decoding.continuations))
    return (
        f"{change:+.2%}",
        f"{score.text.logit_difference:.3f}",
        "yes" if everywhere else " ".join(map(str, same)),
    )


def save_json(scores: list[FormatScore], title: str, path: Path) -> None:
    """The same for programs; `./dev plots` reads it."""
    formats = [
        {
            "name": score.name,
            "bytes_per_token": score.bytes_per_token,
            "perplexity": score.text.perplexity,
            "logit_difference": score.text.logit_difference,
            "tokens_per_second": score.decoding.tokens_per_second,
            "attention_share": score.decoding.attention_share,
        }
        for score in scores
    ]
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(": ")[1] for line in cpus if line.startswith("model name")), "unknown")
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {
        "machine": f"{processor}, {len(os.sched_getaffinity(0))} processors",
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": shlex.join(["./dev", "demo", *sys.argv[1:]]),
        "model": title,
        "tokens": scores[0].text.predicted,
        "formats": formats,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def save_picture(scores: list[FormatScore], title: str, path: Path) -> None:
    """Perplexity and speed against the size of the cache, as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), dpi=150, layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    perplexities = [score.text.perplexity for score in scores]
    _draw(left, scores, perplexities, [f"{value:.2f}" for value in perplexities])
    left.axhline(perplexities[0], color="#9aa3b2", linewidth=1, linestyle="--", zorder=1)
    left.set_title("Perplexity (lower is better)", fontsize=11)
    speeds = [score.decoding.tokens_per_second for score in scores]
    shares = [score.decoding.attention_share for score in scores]
    notes = [f"{speed:.0f}\n{share:.0%} in attention" for speed, share in zip(speeds, shares, strict=True)]
    _draw(right, scores, speeds, notes)
    right.set_ylim(0, 1.4 * max(speeds))
    right.set_title("Decoding, tokens per second (higher is better)", fontsize=11)
    figure.savefig(path)
    plt.close(figure)


def _draw(axes, scores: list[FormatScore], values: list[float], notes: list[str]) -> None:
    sizes = [score.bytes_per_token for score in scores]
    axes.plot(sizes, values, color="#c3cad6", linewidth=1.5, zorder=2)
    axes.scatter(sizes, values, s=90, color=DOT_COLOURS[: len(scores)], zorder=3)
    for score, size, value, note in zip(scores, sizes, values, notes, strict=True):
        above = dict(xytext=(0, 8), textcoords="offset points", ha="center", va="bottom", fontsize=9)
        above["bbox"] = dict(facecolor="white", edgecolor="none", alpha=0.8, pad=1)  # over lines
        axes.annotate(f"{score.name}\n{note}", (size, value), **above)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("cache bytes per token (30 layers, keys, values and scales)")
    axes.margins(x=0.16, y=0.3)
    axes.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
