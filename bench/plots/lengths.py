"""Time of a decoded token against the keys that it sees: formats of quire, and peers that were measured."""

from .theme import Colours, plain_numbers, save, sign


def quire_lines(result):
    lines = {}
    for row in result["results"]:
        if row["query_len"] == 1 and row["batch"] == 1:
            name = f"quire {row['workload'].split('/')[1]}"
            if row["precision"] != "highest" and row["runs_as"] == row["precision"]:
                name += f" {row['precision']}"
            lines.setdefault(name, []).append((row["kv_len"], row["time_min_ms"]))
    return lines


def peer_lines(result):
    lines = {}
    for shape in result["shapes"]:
        for row in shape["rows"]:
            if (
                shape["query_len"] == 1
                and shape["batch"] == 1
                and "time_ms" in row
                and row["peer"] != "quire"
            ):
                lines.setdefault(f"{row['peer']} {row['variant']}", []).append(
                    (shape["kv_len"], row["time_min_ms"])
                )
    return lines


def draw(result, peers, stem):
    ours, theirs = quire_lines(result), peer_lines(peers) if peers else {}
    families, variants = (
        Colours(name.split()[0] for name in theirs),
        Colours(name.split()[1] for name in theirs),
    )

    def picture(figure, colours):
        panels = figure.subplots(1, 2 if theirs else 1, sharey=True, squeeze=False)[0]
        of_ours = Colours(ours)
        for name, points in ours.items():
            style = dict(color=of_ours.colour(name), marker=of_ours.marker(name), markersize=4, linewidth=1.6)
            panels[0].plot(*zip(*sorted(points)), **style, label=name)
        panels[0].set_title("Time of a decoded token", loc="left")
        panels[0].set_ylabel("ms, the least of the runs")
        if theirs:
            draw_peers(panels[1])
        for axes in panels:
            axes.set(yscale="log", xlabel="keys")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(
                lambda keys, _: f"{keys / 1024:g}k" if keys >= 1024 else f"{keys:g}"
            )
            plain_numbers(axes.yaxis)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, fontsize=7.5)
        sign(figure, result, colours)

    def draw_peers(axes):
        for name, points in theirs.items():
            family, variant = name.split()[:2]
            style = dict(color=families.colour(family), marker=variants.marker(variant), markersize=4)
            axes.plot(*zip(*sorted(points)), **style, linewidth=1.3, linestyle="--", label=name)
        points = [point for line in ours.values() for point in line]
        lengths = sorted({length for length, _ in points})
        times = [[time for length, time in points if length == at] for at in lengths]
        low, high = [min(of) for of in times], [max(of) for of in times]
        axes.fill_between(lengths, low, high, color="#8c959f", alpha=0.35, label="quire, all formats")
        axes.set_title("Peers", loc="left")

    return save(stem, picture, size=(8.4, 5.4))
