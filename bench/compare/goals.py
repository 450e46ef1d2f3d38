"""What issue 5 asks for beside other implementations, and whether a run reached it.

The other goals of that issue are in bench/goals.cc: `./dev bench --goals decode`.
"""

import dataclasses

from .report import error_text
from .shape import Shape

SHAPE = Shape("kv4096", 1, 1, 4096)
THREADS = 2
BUSY = 0.3  # processors that others keep busy, from which on nothing is judged


@dataclasses.dataclass(frozen=True)
class Goal:
    variant: str  # of quire
    peer: str
    peer_variant: str
    wanted: float  # the peer's time over quire's


GOALS = (
    Goal("int8, medium", "ik_llama.cpp", "q8_0", 2.2),
    Goal("int8_b16, medium", "ik_llama.cpp", "q8_0", 2.2),
    Goal("int4, medium", "ik_llama.cpp", "q4_0", 3),
    Goal("int4_b16, medium", "ik_llama.cpp", "q4_0", 3),
    Goal("int8", "openvino", "u8", 3),
    Goal("int4", "openvino", "u4", 3),
)

HEAD = """\
Issue 5, beside other implementations: one token on {kv_len} keys, H {heads}, Hk {kv_heads}, D {head_dim},
{threads} threads. *Reached* is the median of the other over that of quire, the call from Python included in
both. Blocks of tokens (int8_b16, int4_b16) are quire's own format; the issue names none."""
DISTURBED = """
Other programs kept {busy:.1f} processors busy before or after: threads that wait by spinning, as those of
ik_llama.cpp, may take many times as long then, and no goal is judged."""
TABLE = "| wanted | reached | verdict | quire | beside |"


def variants():
    """(peer, variant) of all that goals are about."""
    sides = [side for g in GOALS for side in (("quire", g.variant), (g.peer, g.peer_variant))]
    return list(dict.fromkeys(sides))


def is_about(shape):
    return all(shape[field.name] == getattr(SHAPE, field.name) for field in dataclasses.fields(Shape))


def verdict(goal, quire, peer, busy=0):
    """(reached, verdict); figures in units of the last digit that is printed, as quire_bench's goals."""
    for row in (quire, peer):
        if "time_ms" not in row:
            why = row.get("failed", "no run")
            return "", f"not measured: {row['peer']} {row['variant']}: {why}"
    reached = round(peer["time_ms"] / quire["time_ms"], 2)
    if busy >= BUSY:
        return f"{reached:.2f} x", "not judged: the machine was busy"
    missing = round(goal.wanted - reached, 2)
    text = "reached" if missing <= 0 else f"missed by {missing:.2f} x"
    runs_as = quire["note"].rpartition("; runs as ")
    return f"{reached:.2f} x", text + (f" (runs as {runs_as[2]})" if runs_as[1] else "")


def side(row):
    time = f"{row['time_ms']:.3f} ms, error {error_text(row['error'])}" if "time_ms" in row else "failed"
    return f"{row['peer']} {row['variant']}: {time}"


def lines(result):
    """The section about the goals whose two sides are in the run, in Markdown; none without one."""
    about = [shape for shape in result["shapes"] if is_about(shape)]
    rows = {(row["peer"], row["variant"]): row for shape in about for row in shape["rows"]}
    table, busy = [], result.get("busy", 0)
    for goal in GOALS:
        pair = [rows.get(key) for key in (("quire", goal.variant), (goal.peer, goal.peer_variant))]
        if None not in pair:
            cells = f">= {goal.wanted:.2f} x", *verdict(goal, *pair, busy), *map(side, pair)
            table.append(f"| {' | '.join(cells)} |")
    if not table:
        return []
    head = HEAD.format(threads=result["threads"], **about[0])
    if busy >= BUSY:
        head += DISTURBED.format(busy=busy)
    return ["## Goals", "", head, "", TABLE, "|" + " --- |" * TABLE[1:].count("|"), *table, ""]
