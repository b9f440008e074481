"""Runs a lab's cells in a fresh kernel and says, for each test, whether it passed and why not.

Students' own check and the autograder both stand on this: same kernels, same limits, same words.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from utils.ranks import errors
from utils.selfcheck.cell import CellRun
from utils.selfcheck.outputs import FLOOD_CHARS
from utils.selfcheck.session import KernelSession

LAUNCH_ERRORS = {
    name for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.LaunchError)
}  # fmt: skip
# mp.spawn and mp.Process of a function that was defined in a cell
_SPAWNED = re.compile(r"Process(Exited|Raised)Exception|Can't get attribute .* on <module '__main__'")


@dataclass(frozen=True)
class Limits:
    """Seconds a test cell, any other cell, and the whole notebook may take."""

    test_s: float = 60.0
    cell_s: float = 30.0
    notebook_s: float = 900.0

    def __post_init__(self) -> None:
        for name in ("test_s", "cell_s", "notebook_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: a limit is a number of seconds above 0")


@dataclass
class Outcome:
    """What became of one code cell: the one at `index` of the notebook, number `number` of those that run.

    kind is test, solution, shared or plain; status is passed, failed, stopped or not run; message is one
    plain text for the student, empty when the cell passed; picture is a PNG in base64 that goes with it.
    """

    index: int
    number: int
    name: str
    kind: str
    status: str
    message: str = ""
    points: float = 0.0
    seconds: float = 0.0
    outputs: list[dict[str, Any]] = field(default_factory=list)
    picture: str = ""


def kind_of(cell: dict[str, Any]) -> str:
    """test, solution, shared (read-only), plain, or text (not code), by nbgrader's metadata."""
    if cell["cell_type"] != "code":
        return "text"
    meta = cell["metadata"].get("nbgrader", {})
    if meta.get("solution"):
        return "solution"
    if meta.get("grade"):
        return "test"
    return "shared" if meta.get("locked") else "plain"


def name_of(cell: dict[str, Any], number: int) -> str:
    """The task id of a cell, or `cell N` (its number among the code cells) where it has none."""
    meta = cell["metadata"].get("nbgrader", {})
    return meta["grade_id"] if meta.get("grade_id") and kind_of(cell) != "plain" else f"cell {number}"


def run_cells(
    session: KernelSession,
    cells: list[dict[str, Any]],
    limits: Limits = Limits(),
    started: Callable[[str], None] = lambda name: None,
) -> Iterator[Outcome]:
    """Run every code cell in order and yield its outcome; `started` is called with each cell's name first.

    A cell that fails or is stopped does not end the run; a cell that ends the process does, and the
    cells after it are "not run".
    """
    dead = ""
    give_up = time.monotonic() + limits.notebook_s
    # IPython does not count empty cells: this way `cell 7` is what the notebook shows as In[7].
    code_cells = [
        (i, cell) for i, cell in enumerate(cells) if cell["cell_type"] == "code" and cell["source"].strip()
    ]
    for number, (index, cell) in enumerate(code_cells, start=1):
        kind, name = kind_of(cell), name_of(cell, number)
        points = float(cell["metadata"].get("nbgrader", {}).get("points") or 0) if kind == "test" else 0.0
        outcome = Outcome(index, number, name, kind, "not run", points=points)
        left = give_up - time.monotonic()
        if not dead and left <= 0:
            dead = f"the whole notebook may take {limits.notebook_s:.0f} s, used up before this cell"
        if dead:
            outcome.message = f"not run: {dead}"
            yield outcome
            continue
        started(name)
        limit = min(limits.test_s if kind == "test" else limits.cell_s, left)
        run = session.run(cell["source"], limit)
        judge(outcome, run, limit, number, cell["source"])
        if not session.alive:
            dead = _death(run, limit, number, name)
        yield outcome


def judge(outcome: Outcome, run: CellRun, limit: float, number: int, source: str) -> None:
    """Write into `outcome` what a cell's run came to: its status, and the message for the student."""
    outcome.seconds, outcome.outputs = run.seconds, run.outputs
    where = _where(run, outcome.kind, source)
    if run.status == "ok":
        outcome.status = "passed"
    elif run.status == "error":
        outcome.status, outcome.message = "failed", _error(run, where if outcome.kind != "test" else "")
    elif run.status == "stopped":
        report = f"\n{run.evalue}" if run.ename in LAUNCH_ERRORS else ""
        outcome.status, outcome.message = "stopped", f"stopped after {limit:.0f} s{where}{report}"
    elif run.status == "flooded":
        outcome.status = "stopped"
        outcome.message = f"stopped: it printed more than {FLOOD_CHARS // 10**6} million characters{where}"
    else:
        outcome.status, outcome.message = "failed", _death(run, limit, number, outcome.name)


def _where(run: CellRun, kind: str, source: str) -> str:
    """`; it was at line 3: while True:` for the student's own cells, whose text is theirs to see."""
    lines = source.splitlines()
    if run.line is None or not 1 <= run.line <= len(lines) or kind == "test":
        return ""
    return f"; it was at line {run.line}: {lines[run.line - 1].strip()}"


def _error(run: CellRun, where: str) -> str:
    """The exception in words: the course's own errors say everything in their text, others need a type."""
    if run.ename == "NotImplementedError" or re.match(r"rank \d+ raised NotImplementedError", run.evalue):
        return "not answered yet: a cell that this needs still raises NotImplementedError"
    if _SPAWNED.search(f"{run.ename}: {run.evalue}"):
        where += ". A function of a notebook cannot be sent to spawned processes: start ranks with utils.launch"
    if run.ename in {"CheckFailed", "AssertionError", *LAUNCH_ERRORS} and run.evalue:
        return run.evalue + where
    if run.ename == "AssertionError":
        return "a check of this cell did not hold" + where
    return f"{run.ename}: {run.evalue}".rstrip(": ") + where


def _death(run: CellRun, limit: float, number: int, name: str) -> str:
    cell = f"cell {number}" if name == f"cell {number}" else f"cell {number} ({name})"
    if run.status == "stopped":
        return f"{cell} did not stop after {limit:.0f} s, so the process was ended"
    if run.status == "flooded":
        return f"{cell} printed without end and did not stop, so the process was ended"
    code = run.exit_code
    how = "" if code is None else f" (exit code {code})" if code >= 0 else f" (killed by signal {-code})"
    return f"your code ended the process in {cell}{how}"
