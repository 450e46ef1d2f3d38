"""How pictures look: for a light and for a dark page, as wide as a README."""

import contextlib

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as plt  # noqa: E402

THEMES = {
    "light": {"page": "#ffffff", "ink": "#1f2328", "faint": "#d6dbe1", "dim": "#59636e"},
    "dark": {"page": "#0d1117", "ink": "#e6edf3", "faint": "#30363d", "dim": "#9198a1"},
}
# Readable on both pages, and told apart by those who do not tell red from green.
COLOURS = "#2f81f7", "#d9822b", "#2a9d74", "#c05299", "#8a7dd8", "#8c959f", "#b59a00", "#d1495b"
MARKERS = "osD^vPX*"


class Colours:
    """A colour and a marker for each name, in the order in which they come up."""

    def __init__(self, names=()):
        self.names = list(dict.fromkeys(names))

    def index(self, name):
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def colour(self, name):
        return COLOURS[self.index(name) % len(COLOURS)]

    def marker(self, name):
        return MARKERS[self.index(name) % len(MARKERS)]


@contextlib.contextmanager
def style(theme):
    colours = THEMES[theme]
    settings = {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "figure.dpi": 100,
        "savefig.dpi": 200,
        "figure.facecolor": colours["page"],
        "axes.facecolor": colours["page"],
        "savefig.facecolor": colours["page"],
        "grid.color": colours["faint"],
        "axes.edgecolor": colours["dim"],
        **{name: colours["ink"] for name in ("text.color", "axes.labelcolor", "axes.titlecolor")},
        **{name: colours["dim"] for name in ("xtick.color", "ytick.color")},
        **{name: colours["ink"] for name in ("xtick.labelcolor", "ytick.labelcolor")},
    }
    with plt.rc_context(settings):
        yield colours


def save(stem, draw, size=(8.4, 4.4)):
    """STEM_light.png and STEM_dark.png of what draw(figure, colours) draws."""
    written = []
    for theme in THEMES:
        with style(theme) as colours:
            figure = plt.figure(figsize=size, layout="constrained")
            draw(figure, colours)
            path = f"{stem}_{theme}.png"
            figure.savefig(path)
            plt.close(figure)
            written.append(path)
    return written


def sign(figure, result, colours):
    """The machine, its day, the command and what was compared under the picture."""
    # A sign for money would begin a formula.
    text = f"{result['machine']} · {result['date'][:10]} · {result['command']}".replace("$", r"\$")
    if len(text) > 150:
        text = text[:147] + "..."
    if versions := result.get("versions"):
        text += "\n" + ", ".join(f"{name} {version}" for name, version in versions.items())
    figure.supxlabel(text, fontsize=6.5, color=colours["dim"], x=0.01, ha="left")


def plain_numbers(axis):
    """A logarithmic axis with 1, 2, 5, 10, as people write them."""
    axis.set_major_locator(matplotlib.ticker.LogLocator(base=10, subs=(1, 2, 5), numticks=20))
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
