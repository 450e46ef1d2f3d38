"""Who ran which work item of one call, and when."""

from .theme import Colours, save, sign


def draw(result, stem):
    items, threads = result["items"], result["threads"]
    phases = Colours(item["phase"] for item in items)

    def picture(figure, colours):
        axes = figure.add_subplot()
        for name in phases.names:
            for thread in range(threads):
                of = [item for item in items if item["phase"] == name and item["thread"] == thread]
                axes.broken_barh(
                    [(item["begin_us"], item["end_us"] - item["begin_us"]) for item in of],
                    (thread - 0.36, 0.72),
                    **dict(facecolor=phases.colour(name), edgecolor=colours["page"], linewidth=0.6),
                    label=name if thread == 0 else None,
                )
        end = max(item["end_us"] for item in items)
        for item in items:  # its number, where there is room
            if item["end_us"] - item["begin_us"] > end / 45:
                middle = (item["begin_us"] + item["end_us"]) / 2
                axes.text(
                    middle, item["thread"], item["item"], ha="center", va="center", fontsize=7, color="white"
                )
        busy = sum(item["end_us"] - item["begin_us"] for item in items)
        axes.set_yticks(range(threads), [f"thread {i}" for i in range(threads)])
        axes.set_ylim(threads - 0.5, -0.5)
        axes.set_xlim(0, end)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("microseconds")
        axes.set_title(
            f"One call: {result['workload']}, threads busy {100 * busy / end / threads:.0f} % of the time",
            loc="left",
        )
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=9)
        sign(figure, result, colours)

    return save(stem, picture, size=(8.4, 1.5 + 0.55 * threads))
