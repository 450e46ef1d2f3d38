"""The comparison of the cache formats as a table and as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as plt  # noqa: E402
from rich.table import Table  # noqa: E402

from .measure import CONTINUATION_TOKENS, FormatScore  # noqa: E402

DOT_COLOURS = ("#4c566a", "#2f7ebc", "#2a9d5c", "#d9822b")


def first_difference(tokens: list[int], reference: list[int]) -> int | None:
    """Index of the first token that differs, or None."""
    pairs = zip(tokens, reference, strict=True)
    return next((index for index, (token, expected) in enumerate(pairs) if token != expected), None)


def make_table(scores: list[FormatScore], title: str) -> Table:
    """One row a format; the first is what the others are compared to."""
    reference = scores[0]
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("cache")
    for heading in ("bytes/token", "tokens/s", "in attention", "perplexity", "largest logit\ndifference"):
        table.add_column(heading, justify="right")
    table.add_column(f"same {CONTINUATION_TOKENS} tokens\n(greedy) as {scores[0].name}")
    for score in scores:
        table.add_row(
            score.name,
            f"{score.bytes_per_token:,}",
            f"{score.decoding.tokens_per_second:.1f}",
            f"{score.decoding.attention_share:.0%}",
            f"{score.text.perplexity:.3f}{_percent_above(score, reference)}",
            "-" if score is reference else f"{score.text.logit_difference:.3f}",
            "-" if score is reference else _continuation(score, reference),
        )
    return table


def _percent_above(score: FormatScore, reference: FormatScore) -> str:
    change = score.text.perplexity / reference.text.perplexity - 1
    return "" if score is reference else f" ({change:+.2%})"


def _continuation(score: FormatScore, reference: FormatScore) -> str:
    pairs = zip(score.decoding.continuations, reference.decoding.continuations, strict=True)
    differences = [first_difference(tokens, expected) for tokens, expected in pairs]
    positions = sorted(index + 1 for index in differences if index is not None)
    if not positions:
        return f"all {len(differences)}"
    same = len(differences) - len(positions)
    return f"{same} of {len(differences)}; others up to token {', '.join(map(str, positions))}"


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
    shares = [f"{score.decoding.attention_share:.0%} in attention" for score in scores]
    _draw(
        right, scores, speeds, [f"{speed:.0f}\n{share}" for speed, share in zip(speeds, shares, strict=True)]
    )
    right.set_ylim(bottom=0)
    right.set_title("Decoding, tokens per second (higher is better)", fontsize=11)
    figure.savefig(path)
    plt.close(figure)


def _draw(axes, scores: list[FormatScore], values: list[float], notes: list[str]) -> None:
    sizes = [score.bytes_per_token for score in scores]
    axes.plot(sizes, values, color="#c3cad6", linewidth=1.5, zorder=2)
    axes.scatter(sizes, values, s=90, color=DOT_COLOURS[: len(scores)], zorder=3)
    for score, size, value, note in zip(scores, sizes, values, notes, strict=True):
        above = dict(xytext=(0, 9), textcoords="offset points", ha="center", va="bottom", fontsize=9)
        axes.annotate(f"{score.name}\n{note}", (size, value), **above)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("cache bytes per token (30 layers, keys, values and scales)")
    axes.margins(x=0.16, y=0.3)
    axes.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
