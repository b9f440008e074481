"""Runs one submission in two halves: the student's cells in a sandbox, the tests on the verdict side.

Cells go in the notebook's order. A cell that ends the sandboxed process costs only itself: another process is started,
the student's earlier cells are run there again, and grading goes on. What the journal tells of messages is held to what
the sandbox's network counted.
"""

from __future__ import annotations

import base64
import io
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autograder.idle import WHY
from autograder.sandbox.base import Forged, Sandbox
from autograder.sandbox.channel import Channel
from autograder.tampering import suspicions
from autograder.traffic import disagreement
from autograder.verdict import AnswerLost, Judged, Verdict
from utils.selfcheck.cell import CellRun
from utils.selfcheck.notebook import Limits, Outcome, judge, kind_of, name_of
from utils.trace.events import Trace

MOST_RESTARTS = 12
_UNSEEN = ("Cc", "Cf", "Cs")  # control characters, marks that turn the direction of text, halves of characters
MOST_DRAWN = 300  # operations in a timeline that can still be read


@dataclass
class Answering:
    """The student's half: a sandboxed process, and what must be run to make another like it."""

    open_one: Callable[[], Sandbox]
    cell_s: float
    history: list[tuple[int, str]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    restarts: int = -1
    sandbox: Sandbox | None = None
    channel: Channel | None = None

    def ready(self) -> Channel:
        """A living channel with all earlier cells run."""
        while self.channel is None or not self.channel.alive:
            self.close()
            self.restarts += 1
            if self.restarts > MOST_RESTARTS:
                raise AnswerLost(f"your code ended its process {MOST_RESTARTS} times, so the rest was not run")
            self.sandbox = self.open_one()
            self.channel = self.sandbox.start()
            self._replay(self.channel)
        return self.channel

    def _replay(self, channel: Channel) -> None:
        """Run the earlier cells again; one that ends the process this time is left out from now on."""
        for entry in list(self.history):
            if self.run(channel, *entry, self.cell_s).status == "died":
                self.history.remove(entry)
                return

    def cell(self, number: int, source: str, limit_s: float) -> CellRun:
        """Run one of the student's cells, and remember it unless it ended the process."""
        channel = self.ready()
        run = self.run(channel, number, source, limit_s)
        if channel.changed:
            self.flag(f"after cell {number} these were no longer what they were: {', '.join(channel.changed[:6])}")
        if run.status != "died":
            self.history.append((number, source))
        return run

    def run(self, channel: Channel, number: int, source: str, limit_s: float) -> CellRun:
        try:
            return channel.cell(number, source, limit_s)
        except Forged as forged:
            self.flag(str(forged))
            return CellRun("died", ename="Killed", evalue="it sent the grader what no cell sends")

    def probe(self, payload: bytes, options: Any, limit_s: float) -> Any:
        """The verdict side's link: a probe of a test."""
        try:
            return self.ready().probe(payload, options, limit_s)
        except Forged as forged:
            self.flag(str(forged))
            raise

    def flag(self, what: str) -> None:
        if what not in self.flags:
            self.flags.append(what)

    def counted(self) -> int | None:
        """Bytes that the sandbox's network has carried, None where it does not count."""
        return self.sandbox.usage().loopback_bytes if self.sandbox is not None else None

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        if self.sandbox is not None:
            self.sandbox.close()
        self.sandbox = self.channel = None


class Engine:
    """Grades the cells of one submission; `flags` are what a person should look at, once all cells have run.

    open_one: makes a fresh sandbox. launch_s: seconds the ranks of one launch may take.
    """

    def __init__(self, open_one: Callable[[], Sandbox], limits: Limits, launch_s: float) -> None:
        self.limits = limits
        self.answering = Answering(open_one, limits.cell_s)
        self.verdict = Verdict(self.answering, launch_s)
        self.give_up = time.monotonic() + limits.notebook_s
        self.lost_names: dict[str, str] = {}  # what cells that ended the process would have defined, and what they did

    @property
    def flags(self) -> list[str]:
        return self.answering.flags

    def grade(
        self, cells: list[dict[str, Any]], started: Callable[[str], None] = lambda name: None
    ) -> Iterator[Outcome]:
        """Run every code cell in order and yield what became of it."""
        code = [(i, cell) for i, cell in enumerate(cells) if cell["cell_type"] == "code" and cell["source"].strip()]
        try:
            for number, (index, cell) in enumerate(code, start=1):
                kind, name = kind_of(cell), name_of(cell, number)
                points = float(cell["metadata"].get("nbgrader", {}).get("points") or 0) if kind == "test" else 0.0
                outcome = Outcome(index, number, name, kind, "not run", points=points)
                if cell.get("idle"):
                    outcome.message = WHY
                else:
                    started(name)
                    self._one(outcome, cell["source"])
                outcome.message = printable(outcome.message)
                yield outcome
        finally:
            self.answering.close()

    def _one(self, outcome: Outcome, source: str) -> None:
        left = self.give_up - time.monotonic()
        if left <= 0:
            outcome.message = (
                f"not run: the whole notebook may take {self.limits.notebook_s:.0f} s, used up before this cell"
            )
            return
        try:
            if outcome.kind == "test":
                self._test(outcome, source, min(self.limits.test_s, left))
            else:
                self._cell(outcome, source, min(self.limits.cell_s, left))
        except AnswerLost as lost:
            outcome.message = f"not run: {lost}"

    def _cell(self, outcome: Outcome, source: str, limit: float) -> None:
        if outcome.kind == "shared":
            self.verdict.share(outcome.name, source)
        elif found := suspicions(source):
            self.answering.flag(f"{outcome.name}: its code {'; '.join(found)}")
        run = self.answering.cell(outcome.number, source, limit)
        judge(outcome, run, limit, outcome.number, source)
        if run.status == "died" and run.evalue:
            outcome.message = f"stopped: {run.evalue}"
        if run.status == "died":
            self.lost_names[outcome.name] = outcome.message

    def _test(self, outcome: Outcome, source: str, limit: float) -> None:
        self.answering.ready()  # starting over is not the test's time
        before = self.answering.counted()
        judged = self.verdict.test(outcome.name, source, limit)
        judge(outcome, _as_run(judged), limit, outcome.number, source)
        if outcome.status != "passed":
            outcome.picture = timeline(judged.traces)
            missing = re.search(r"name '(\w+)' is not defined", outcome.message)
            outcome.message = self.lost_names.get(missing[1], outcome.message) if missing else outcome.message
        if judged.status == "lost":
            outcome.status, outcome.message = "failed", judged.text
            return
        after = self.answering.counted()
        if before is not None and after is not None:
            found = disagreement(judged.traces, after - before, judged.status == "passed" and judged.all_told)
            if found:
                self.answering.flag(f"{outcome.name}: {found}")


def printable(text: str) -> str:
    """A message that no terminal, file or page takes for more than text: control characters are shown, not sent.

    Example: the escape that would clear a terminal becomes the six characters `\\x1b[2J`.
    """
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSEEN else ascii(c)[1:-1] for c in text)


def _as_run(judged: Judged) -> CellRun:
    """A test's result in the form that cells' results have, so that both are told in the same words."""
    status = {"passed": "ok", "failed": "error", "lost": "error"}.get(judged.status, judged.status)
    outputs: list[dict[str, Any]] = []
    if judged.printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": judged.printed})
    if judged.credit is not None:
        shown = {"data": {"text/plain": repr(judged.credit)}, "metadata": {}, "execution_count": None}
        outputs.append({"output_type": "execute_result", **shown})
    return CellRun(status, judged.seconds, judged.kind, judged.text, outputs=outputs)


def timeline(traces: list[Trace]) -> str:
    """The last run's timeline as PNG in base64, where there is something to see; "" otherwise."""
    trace = traces[-1] if traces else None
    if trace is None or not 0 < len(trace.events) <= MOST_DRAWN or trace.ranks > 8:
        return ""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax, out = trace.plot(), io.BytesIO()
    ax.figure.savefig(out, format="png", dpi=80)
    plt.close(ax.figure)
    return base64.b64encode(out.getvalue()).decode()
