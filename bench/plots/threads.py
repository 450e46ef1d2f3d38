"""How much faster more threads are, beside what the machine's own limits gain."""

from .theme import Colours, save, sign


def draw(result, stem):
    rows = {}
    for row in result["results"]:
        rows.setdefault(row["workload"].rsplit("/t", 1)[0], {})[row["threads"]] = row["time_ms"]
    rows = {name: times for name, times in rows.items() if len(times) > 1 and 1 in times}
    limits = {int(name[1:]): values for name, values in result["limits"].items()}
    counts = sorted({count for times in rows.values() for count in times})

    def picture(figure, colours):
        axes = figure.add_subplot()
        axes.plot(
            counts, counts, color=colours["dim"], linewidth=1, linestyle=":", label="as many times faster"
        )
        for field, label, style in (
            ("dram_read_gb_per_s", "DRAM read", "--"),
            ("fma_gflop_per_s", "float32 FMA", "-."),
        ):
            gain = [limits[count][field] / limits[1][field] for count in counts]
            axes.plot(counts, gain, color=colours["ink"], linewidth=1.4, linestyle=style, label=label)
        names = Colours(rows)
        for name, times in rows.items():
            gain = [times[1] / times[count] for count in counts if count in times]
            axes.plot(
                *([count for count in counts if count in times], gain),
                **dict(color=names.colour(name), marker=names.marker(name), markersize=5, linewidth=1.6),
                label=name,
            )
        axes.set_xticks(counts)
        axes.set(xlabel="threads", ylabel="times as fast as one thread")
        axes.set_title("Scaling over threads", loc="left")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        sign(figure, result, colours)

    return save(stem, picture, size=(8.4, 3.9))
