"""What a smaller cache costs the model of the demo: perplexity against bytes."""

from .theme import Colours, save, sign


def draw(result, stem):
    rows = result["formats"]
    names = Colours(row["name"] for row in rows)

    def picture(figure, colours):
        axes = figure.add_subplot()
        sizes, values = [row["bytes_per_token"] for row in rows], [row["perplexity"] for row in rows]
        axes.axhline(values[0], color=colours["dim"], linewidth=1, linestyle="--")
        axes.plot(sizes, values, color=colours["faint"], linewidth=1.5)
        for row, x, y in zip(rows, sizes, values):
            axes.scatter(x, y, s=80, color=names.colour(row["name"]), zorder=3)
            change = f" ({100 * (y / values[0] - 1):+.2f} %)" if row is not rows[0] else ""
            text = f"{row['name']}\n{y:.3f}{change}"
            axes.annotate(text, (x, y), xytext=(0, 9), textcoords="offset points", ha="center", fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.margins(x=0.14, y=0.35)
        axes.set(xlabel=f"bytes a token of the cache ({result['model']})", ylabel="perplexity")
        axes.set_title(f"Perplexity over {result['tokens']:,} tokens of text", loc="left")
        sign(figure, result, colours)

    return save(stem, picture, size=(8.4, 3.9))
