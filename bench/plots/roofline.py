"""Operations a second against operations a byte, under the limits that the machine had during the run."""

from .theme import Colours, plain_numbers, save, sign


def name_of(row):
    return row["workload"].split("/")[1]


def kind_of(row):
    op, _, lengths = row["workload"].split("/")[:3]
    return f"{op} {lengths}"


def draw(result, stem):
    rows = [row for row in result["results"] if row["flops"] > 0]
    threads = max(row["threads"] for row in rows)
    rows = [row for row in rows if row["threads"] == threads]
    limits = result["limits"][f"t{threads}"]
    read, peak = limits["dram_read_gb_per_s"], limits["fma_gflop_per_s"]
    formats = Colours(name_of(row) for row in rows)
    kinds = Colours(kind_of(row) for row in rows)

    def picture(figure, colours):
        axes = figure.add_subplot()
        intensity = [row["flops"] / row["bytes"] for row in rows]
        low, high = min(intensity) / 2, max(max(intensity), peak / read) * 2.5
        ridge = peak / read
        axes.plot([low, ridge, high], [low * read, peak, peak], color=colours["ink"], linewidth=1.8)
        begin = low * 1.1  # where no format has so few operations
        axes.annotate(
            *(f"DRAM read {read:.1f} GB/s", (begin, begin * read)),
            **dict(xytext=(8, -6), textcoords="offset points", color=colours["dim"], fontsize=9),
        )
        axes.annotate(
            *(f"float32 FMA {peak:.0f} GFLOP/s", (high, peak)),
            **dict(xytext=(0, 5), textcoords="offset points", ha="right", color=colours["dim"], fontsize=9),
        )
        for row, x in zip(rows, intensity):
            axes.scatter(
                *(x, row["gflop_per_s"]),
                **dict(s=60, color=formats.colour(name_of(row)), marker=kinds.marker(kind_of(row)), zorder=3),
                **dict(edgecolor=colours["page"], linewidth=0.6),
            )
        axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
        axes.set_title(f"Roofline, {threads} threads: a dot a workload and format", loc="left")
        for axis in (axes.xaxis, axes.yaxis):
            plain_numbers(axis)
        legend(axes, colours)
        sign(figure, result, colours)

    def legend(axes, colours):
        from matplotlib.lines import Line2D

        def dot(colour, marker, label):
            return Line2D([], [], linestyle="", color=colour, marker=marker, markersize=7, label=label)

        handles = [dot(formats.colour(name), "o", name) for name in formats.names]
        handles += [dot(colours["dim"], kinds.marker(name), name) for name in kinds.names]
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)

    return save(stem, picture)
