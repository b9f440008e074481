"""One run of one submission, in whatever process does it: the grader's own, one of a pool, one of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder import runs
from autograder.engine import Engine
from autograder.idle import idle_cells
from autograder.sandbox import open_sandbox
from autograder.sandbox.base import Limits as Walls
from utils.selfcheck.notebook import Limits


@dataclass(frozen=True)
class Terms:
    """How submissions are run: limits of cells, seconds a launch may take, the sandbox, what it must not show."""

    limits: Limits = field(default_factory=Limits)
    launch_s: float = 10.0
    sandbox: str = "bubblewrap"
    hidden: tuple[str, ...] = ()


def run_cells(
    cells: list[Any], terms: Terms, files: Path | None = None, started: Callable[[str], None] = lambda name: None
) -> runs.Ran:
    """Run the cells of a submission; `files` is the folder of what was handed in beside the notebook."""
    told: list[str] = []

    def make() -> Any:
        sandbox = open_sandbox(terms.sandbox, files, Walls(launch_s=terms.launch_s), terms.hidden)
        told.append(sandbox.describe())
        return sandbox

    engine = Engine(make, terms.limits, terms.launch_s)
    outcomes = list(engine.grade(cells, started))
    return runs.Ran(outcomes, engine.flags, told[0] if told else "")


def is_kept(data: Path, cells: list[Any], terms: Terms, files: Path | None) -> bool:
    """Whether this run was made before."""
    return runs.load(data, runs.key(cells, terms.limits, terms.launch_s, terms.sandbox, files)) is not None


def run_kept(
    data: Path,
    cells: list[Any],
    terms: Terms,
    files: Path | None = None,
    started: Callable[[str], None] = lambda name: None,
) -> tuple[runs.Ran, bool]:
    """The same, from what was kept where that is possible; says whether it was."""
    name = runs.key(cells, terms.limits, terms.launch_s, terms.sandbox, files)
    kept = runs.load(data, name)
    if kept is not None:
        return kept, True
    ran = run_cells(cells, terms, files, started)
    runs.save(data, name, ran)
    return ran, False


def plain_cells(cells: Iterable[Any], released: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Cells as plain dicts, without outputs, as a worker of another process gets them.

    released: the texts of the release's plain cells; what only shows something is marked, and left out of the run.
    """
    cells = list(cells)
    idle = idle_cells(cells, released)
    return [
        {
            "cell_type": cell["cell_type"],
            "source": cell["source"],
            "metadata": {"nbgrader": dict(cell["metadata"].get("nbgrader") or {})},
            "idle": index in idle,
        }
        for index, cell in enumerate(cells)
    ]
