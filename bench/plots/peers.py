"""Bars of a comparison: a panel a shape, a bar a peer and format, its error beside it."""

from .theme import Colours, plain_numbers, save, sign


def title_of(shape):
    if shape["query_len"] == 1:
        batch = f"{shape['batch']} x " if shape["batch"] > 1 else ""
        return f"decode, {batch}{shape['kv_len']} keys"
    return f"prefill, {shape['query_len']} on {shape['kv_len']} keys"


def ms(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def error_text(error):
    return f"{100 * error:.2g} %" if error >= 1e-4 else f"{error:.0e}"


def panel(axes, shape, peers):
    rows = sorted((r for r in shape["rows"] if "time_ms" in r), key=lambda r: -r["time_min_ms"])
    names = [f"{row['peer']} {row['variant']}" for row in rows]
    times = [row["time_min_ms"] for row in rows]
    axes.barh(names, times, color=[peers.colour(row["peer"]) for row in rows], height=0.72)
    for name, row in zip(names, rows):
        axes.plot(
            [row["time_min_ms"], row["time_ms"]], [name, name], color=peers.colour(row["peer"]), linewidth=2
        )
        text = f" {ms(row['time_min_ms'])} ms, error {error_text(row['error'])}"
        axes.text(max(row["time_min_ms"], row["time_ms"]), name, text, va="center", fontsize=6.5)
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.6, max(row["time_ms"] for row in rows) * 8)
    plain_numbers(axes.xaxis)
    axes.tick_params(axis="y", labelsize=7.5)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.grid(axis="y", visible=False)
    axes.set_title(title_of(shape), loc="left", fontsize=10)
    axes.set_xlabel("ms, logarithmic: bars are the least, lines reach to the median", fontsize=8)


def draw(result, stem):
    shapes = [shape for shape in result["shapes"] if any("time_ms" in row for row in shape["rows"])]
    peers = Colours(row["peer"] for shape in shapes for row in shape["rows"])
    columns = 2 if len(shapes) > 1 else 1
    lines = -(-len(shapes) // columns)
    most = max(sum("time_ms" in row for row in shape["rows"]) for shape in shapes)

    def picture(figure, colours):
        for i, shape in enumerate(shapes):
            panel(figure.add_subplot(lines, columns, i + 1), shape, peers)
        sign(figure, result, colours)

    return save(stem, picture, size=(9.6, lines * (0.9 + 0.19 * most) + 0.3))
