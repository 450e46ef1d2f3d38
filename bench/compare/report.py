"""The table of a comparison, in Markdown."""

EXPLAINED = """\
Runs that took turns with those of all others, {threads} threads each, H {heads}, Hk {kv_heads}, D {head_dim},
one layer: the same cache in every run, so that one smaller than the processor's last cache is read from
there. *Error* is the RMS of the difference from float64 attention over the inputs before they are stored,
over the RMS of the exact result: what a format loses is in it. *x*: how many times as long as the quickest of
quire with an error below 1 %, by the least times: what else a shared machine does is in the medians."""


def least(row):
    return row.get("time_min_ms", float("inf"))


def best_of_quire(rows):
    good = [r for r in rows if r["peer"] == "quire" and "time_ms" in r]
    accurate = [r for r in good if r["error"] < 0.01]
    return min(accurate or good, key=lambda r: r["time_min_ms"], default=None)


def ms(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def error_text(error):
    return f"{100 * error:.2g} %" if error >= 1e-4 else f"{error:.0e}"


def row_of(row, unit):
    name = f"{row['peer']} {row['variant']}"
    if "time_ms" not in row:
        return f"| {name} | failed | | | | | | {row.get('failed', '')} |"
    ratio = f"{row['time_min_ms'] / unit:.2f}" if unit else ""
    times = f"{ms(row['time_min_ms'])} ms | {ms(row['time_ms'])} ms | {100 * row['spread']:.0f} %"
    speed = f"{row['cache_gb_per_s']:.1f}"
    return f"| {name} | {times} | {ratio} | {speed} | {error_text(row['error'])} | {row['note']} |"


def table_of(shape):
    best = best_of_quire(shape["rows"])
    rows = sorted(shape["rows"], key=least)
    lines = ["| | least | median | spread | x | cache GB/s | error | |", "|" + " --- |" * 8]
    return lines + [row_of(row, best and best["time_min_ms"]) for row in rows]


def title_of(shape):
    if shape["query_len"] == 1:
        batch = f"{shape['batch']} sequences, " if shape["batch"] > 1 else ""
        return f"Decode: {batch}one token on {shape['kv_len']} keys"
    return f"Prefill: {shape['query_len']} tokens on {shape['kv_len']} keys (their own included, causal)"


def head(result):
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [f"- machine: {result['machine']}", f"- date: {result['date']}", f"- versions: {versions}"]
    lines += [f"- command: `{result['command']}`"]
    if "load" in result:
        lines.append(f"- load average before it began: {result['load']:.1f}")
    return [*lines, ""]


def markdown(result, picture, closing=()):
    """`closing`: lines behind the tables."""
    lines = ["# Peers side by side", "", "Written by the command below; not edited by hand.", ""]
    lines += head(result)
    for shape in result["shapes"]:
        lines += [f"## {title_of(shape)}", ""]
        if shape is result["shapes"][0]:
            lines += [EXPLAINED.format(threads=result["threads"], **shape), ""]
        lines += [*table_of(shape), ""]
    lines += [
        *closing,
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{picture}_dark.png">',
        f'  <img alt="Time of each peer by shape" src="{picture}_light.png">',
        "</picture>",
        "",
    ]
    return "\n".join(lines)


BEGIN, END = "<!-- ./dev compare writes from here -->", "<!-- to here -->"


def readme_part(result, directory):
    """The first shape, and the picture of all."""
    shape = result["shapes"][0]
    rows = sorted(shape["rows"], key=least)
    lines = [f"{title_of(shape)}, H {shape['heads']}, Hk {shape['kv_heads']}, D {shape['head_dim']},"]
    lines += [f"{result['threads']} threads, {result['machine']}, {result['date']}:", ""]
    lines += ["| | least | median | error against float64 |", "| --- | --- | --- | --- |"]
    for row in rows:
        if "time_ms" in row:
            times = f"{ms(row['time_min_ms'])} ms | {ms(row['time_ms'])} ms"
            lines.append(f"| {row['peer']} {row['variant']} | {times} | {error_text(row['error'])} |")
    failed = [f"{row['peer']} {row['variant']}" for row in rows if "time_ms" not in row]
    if failed:
        lines += ["", f"Failed or not offered here: {', '.join(failed)}; [why]({directory}/compare.md)."]
    lines += ["", "<picture>"]
    lines += [
        f'  <source media="(prefers-color-scheme: dark)" srcset="{directory}/compare_dark.png">',
        f'  <img alt="Time of each peer by shape" src="{directory}/compare_light.png">',
        "</picture>",
    ]
    return "\n".join(lines)


def with_part(readme, part):
    """The text of README with this part in place of the last one."""
    before, _, rest = readme.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README.md has no place for the table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"
