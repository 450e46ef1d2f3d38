"""Shows answers while they grow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from .engine import Listener, Sequence
from .tokenizer import ChatTokenizer, TextStream

COLOURS = ("cyan", "green", "magenta", "yellow", "blue")


@dataclass
class Answer:
    """The text of one sequence so far."""

    number: int
    prompt: str
    stream: TextStream
    text: str = ""
    shown: int = 0  # characters that AnswerLines has printed

    @property
    def colour(self) -> str:
        return COLOURS[self.number % len(COLOURS)]


@dataclass
class AnswerView(Listener):
    """Collects the answers; the subclasses show them."""

    console: Console
    tokenizer: ChatTokenizer
    prompts: list[str]
    answers: dict[int, Answer] = field(default_factory=dict)

    def joined(self, sequence: Sequence) -> None:
        index = sequence.index
        self.answers[index] = Answer(index + 1, self.prompts[index], self.tokenizer.stream())

    def produced(self, sequence: Sequence, token: int) -> None:
        answer = self.answers[sequence.index]
        answer.text += answer.stream.push(token)


class AnswerPanels(AnswerView):
    """For terminals: one panel for each sequence that runs; a finished one stays above."""

    @contextmanager
    def showing(self) -> Iterator[None]:
        with Live(console=self.console, refresh_per_second=12) as self._live:
            yield

    def joined(self, sequence: Sequence) -> None:
        super().joined(sequence)
        self._refresh()

    def produced(self, sequence: Sequence, token: int) -> None:
        super().produced(sequence, token)
        self._refresh()

    def left(self, sequence: Sequence) -> None:
        answer = self.answers.pop(sequence.index)
        self._refresh()
        self._live.console.print(self._panel(answer, f"{len(sequence.produced)} tokens"))

    def _refresh(self) -> None:
        self._live.update(Group(*(self._panel(answer) for answer in self.answers.values())))

    def _panel(self, answer: Answer, subtitle: str | None = None) -> Panel:
        title = Text(f"{answer.number}  {_one_line(answer.prompt, self.console.width - 12)}", style="bold")
        return Panel(
            Text(answer.text), title=title, title_align="left", subtitle=subtitle, border_style=answer.colour
        )


class AnswerLines(AnswerView):
    """For files and pipes: a line is printed when it is full, with the number of its prompt in front."""

    @contextmanager
    def showing(self) -> Iterator[None]:
        yield

    def joined(self, sequence: Sequence) -> None:
        super().joined(sequence)
        answer = self.answers[sequence.index]
        self._print(answer, f"joins: {_one_line(answer.prompt, self.console.width - 12)}", "bold")

    def produced(self, sequence: Sequence, token: int) -> None:
        super().produced(sequence, token)
        answer = self.answers[sequence.index]
        while line := _full_line(answer.text[answer.shown :], self.console.width - 4):
            self._print(answer, line.rstrip())
            answer.shown += len(line)

    def left(self, sequence: Sequence) -> None:
        answer = self.answers.pop(sequence.index)
        self._print(answer, answer.text[answer.shown :])
        self._print(answer, f"leaves after {len(sequence.produced)} tokens", "bold")

    def _print(self, answer: Answer, line: str, style: str = "") -> None:
        if line:
            self.console.print(
                Text.assemble((f"{answer.number} ", answer.colour), (line, style)), soft_wrap=True
            )


def answer_view(console: Console, tokenizer: ChatTokenizer, prompts: list[str]) -> AnswerView:
    kind = AnswerPanels if console.is_terminal else AnswerLines
    return kind(console, tokenizer, prompts)


def _one_line(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3].rstrip() + "..."


def _full_line(text: str, width: int) -> str:
    """The first line of text if it can grow no more, with its line feed; else nothing."""
    head, feed, _ = text.partition("\n")
    if len(head) <= width:
        return head + feed if feed else ""
    cut = head.rfind(" ", 0, width + 1)
    return head[: cut + 1] if cut > 0 else head[:width]
