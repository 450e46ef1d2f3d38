"""Progress of long steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn


class ProgressView:
    """One bar on a terminal; a line at the beginning of each stage elsewhere."""

    def __init__(self, console: Console):
        self._console = console
        columns = ("{task.description}", BarColumn(), "{task.percentage:>3.0f} %", TimeElapsedColumn())
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def __enter__(self) -> ProgressView:
        self._bars.start()
        return self

    def __exit__(self, *_) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Stage]:
        """A long step of total units."""
        if not self._console.is_terminal:
            self._console.print(f"{title} ...", highlight=False)
        task = self._bars.add_task(title, total=total)
        yield Stage(self._bars, task)
        self._bars.remove_task(task)


@dataclass
class Stage:
    _bars: Progress
    _task: int

    def advance(self, units: int) -> None:
        self._bars.advance(self._task, units)
