"""Time of a decoded token against the keys that it sees: formats of quire, and peers that were measured."""

from .theme import Colours, save, sign, time_axis


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
    families = Colours(name.split()[0] for name in (*ours, *theirs))

    def plot(axes, lines, colours_of, dashed):
        for name, points in lines.items():
            style = dict(color=colours_of.colour(name), marker=colours_of.marker(name), markersize=4)
            axes.plot(*zip(*sorted(points)), **style, linewidth=1.6, linestyle=dashed, label=name)

    def picture(figure, colours):
        panels = figure.subplots(1, 2 if theirs else 1, sharey=True, squeeze=False)[0]
        plot(panels[0], ours, Colours(ours), "-")
        panels[0].set_title("Time of a decoded token", loc="left")
        panels[0].set_ylabel("ms, the least of the runs")
        if theirs:
            plot(panels[1], theirs, Colours(theirs), "--")
            all_points = [point for points in ours.values() for point in points]
            lengths = sorted({length for length, _ in all_points})
            band = [[time for length, time in all_points if length == at] for at in lengths]
            low, high = [min(times) for times in band], [max(times) for times in band]
            panels[1].fill_between(
                lengths, low, high, color=families.colour("quire"), alpha=0.3, label="quire"
            )
            panels[1].set_title("Peers", loc="left")
        for axes in panels:
            axes.set(xscale="log", yscale="log", xlabel="keys")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(
                lambda value, _: f"{value / 1024:g}k" if value >= 1024 else f"{value:g}"
            )
            time_axis(axes.yaxis)
            axes.legend(fontsize=7.5)
        sign(figure, result, colours)

    return save(stem, picture, size=(8.4, 4.8))
