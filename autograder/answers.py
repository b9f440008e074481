"""Run a lab's tests straight from its text source, in this process: how wrong and unusual answers are tried.

No Jupyter, no sandbox: for answers of the course's own only. An answer file is a text source with a header:

    # kind: wrong                            or right
    # about: summed over ranks but never divided (C01)
    # loses: ring_uneven, ring_sum           exactly these tests fail; left out for a right answer
    # says: "ring_uneven": "never divided"   part of that test's message; one line a test
    # %% solution="ring_all_reduce"
    def ring_all_reduce(x): ...

An answer that differs from the reference in a few lines has these alone, in an edit cell (autograder/sources/edits.py).
"""

from __future__ import annotations

import io
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.oracles import kept_oracles
from autograder.sources.cells import Cell, Source, SourceError, read_source
from autograder.sources.edits import edited
from autograder.sources.headers import names_in, read_header, says_in
from autograder.sources.regions import stubbed
from autograder.sources.rules import touched_names
from utils.ranks.environment import environment

SECONDS_PER_LAUNCH = 20
HEADER = ("kind", "about", "loses", "says", "edits")
MARK = re.compile(r"### (BEGIN|END) SOLUTION")


@dataclass(frozen=True)
class Outcome:
    """What became of one test: status is passed or failed, message is what the student would read."""

    status: str
    points: int
    max_points: int
    message: str = ""


@dataclass(frozen=True)
class Answer:
    """One answer file: its cells by solution id, the tests it must lose, and what they must say."""

    path: Path
    kind: str
    about: str
    replace: Mapping[str, str]
    loses: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem


def read_answer(path: str | Path, lab: Source) -> Answer:
    """Read an answer file, held to its lab: SourceError names a test or a solution that the lab has not."""
    source = read_source(path)
    fields = read_header(source, HEADER)
    answer = Answer(
        path=source.path,
        kind=" ".join(fields["kind"]),
        about=" ".join(fields["about"]),
        replace=_replaced(source, lab, names_in(fields["edits"])),
        loses=names_in(fields["loses"]),
        says=says_in(fields["says"], source),
    )
    _hold_to(answer, lab, source)
    return answer


def _replaced(source: Source, lab: Source, bases: Sequence[str]) -> dict[str, str]:
    """The cells that an answer replaces: as they stand, or as an edit gives them, of the reference or of `bases`.

    bases: names of answers beside this one, without edits, whose cells stand in the reference's place.
    """
    reference = {cell.name: cell.text for cell in lab.of_kind("solution")}
    for name in bases:
        path = source.path.with_name(f"{name}.py")
        base = read_source(path) if path.is_file() else None
        if base is None or base.of_kind("edit") or path == source.path:
            raise SourceError(f"{source.path.name}: there is no answer {name} beside it with whole cells to edit.")
        reference |= {cell.name: cell.text for cell in base.of_kind("solution")}
    replaced = {cell.name: cell.text for cell in source.of_kind("solution")}
    for cell in source.of_kind("edit"):
        if cell.name not in reference:
            raise SourceError(f"{source.path.name}: {lab.name} has no solution {cell.name}.")
        lines = [line for line in reference[cell.name].splitlines() if not MARK.search(line)]
        try:
            replaced[cell.name] = edited("\n".join(lines), cell.text)
        except ValueError as error:
            raise SourceError(f"{source.path.name}, line {cell.line}: {error}.") from error
    return replaced


def _hold_to(answer: Answer, lab: Source, source: Source) -> None:
    tests = {cell.name for cell in lab.of_kind("test")}
    solutions = {cell.name for cell in lab.of_kind("solution")}
    problems = [f"{lab.name} has no test {name}" for name in {*answer.loses, *answer.says} - tests]
    problems += [f"{lab.name} has no solution {name}" for name in set(answer.replace) - solutions]
    problems += [
        f"{name} has a message and does not lose it" for name in set(answer.says) - set(answer.loses)
    ]
    if answer.kind not in ("right", "wrong"):
        problems.append("kind is right or wrong")
    if not answer.about:
        problems.append("about is missing")
    if not answer.replace or len(answer.replace) != len(source.cells):
        problems.append("an answer has solution cells and edit cells, at least one, each task once, and no other cells")
    if (answer.kind == "wrong") != bool(answer.loses):
        problems.append("a wrong answer loses a test, a right one none")
    if problems:
        raise SourceError(f"{source.path.name}: {'; '.join(problems)}.")


def kept_tests(answer: Answer, lab: Source) -> list[str]:
    """The tests that an answer must pass, those whose probes use what it replaces first."""
    touched = touched_names(lab)
    kept = [cell.name for cell in lab.of_kind("test") if cell.name not in answer.loses]
    return sorted(kept, key=lambda test: not touched[test] & set(answer.replace))


def touching_tests(answer: Answer, lab: Source) -> list[str]:
    """The tests whose probes use what an answer replaces, itself or by way of another solution."""
    touched = touched_names(lab)
    return [cell.name for cell in lab.of_kind("test") if touched[cell.name] & set(answer.replace)]


def blank(lab: Source) -> dict[str, str]:
    """Every solution as students get it: what a blank submission holds."""
    return {cell.name: stubbed(cell.text) for cell in lab.of_kind("solution")}


def run_lab(
    source: str | Path | Source,
    replace: Mapping[str, str] | None = None,
    tests: Sequence[str] | None = None,
    seconds: float = SECONDS_PER_LAUNCH,
) -> dict[str, Outcome]:
    """Run tests of a lab against its reference, with some solution cells replaced.

    Args:
        source: the lab's text source.
        replace: code by solution id, in place of the reference's.
        tests: ids of the tests to run, None for all; they run in the lab's order.
        seconds: the longest that one launch may take.

    Returns: an Outcome by test id. What runs prints nothing; plain cells do not run. A solution cell that
    raises leaves its names undefined, as in a kernel.

    Example:
        run_lab("solutions/lab01_allreduce.py", {"broadcast": "def broadcast(x, src): pass"}, ["broadcast"])
        # {'broadcast': Outcome('failed', 0, 1, 'rank 1 still holds its own input ...')}
    """
    lab = source if isinstance(source, Source) else read_source(source)
    replace = dict(replace or {})
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    outcomes = {}
    # every launch inside is capped, as in grading
    with _quiet(), environment(UTILS_TIMEOUT=str(seconds)), kept_oracles():
        for cell in lab.of_kind("shared", "solution", "test"):
            if cell.kind == "shared":
                _execute(lab, cell, cell.text, namespace)
            elif cell.kind == "solution":
                _try(lab, cell, replace.get(cell.name, cell.text), namespace)
            elif tests is None or cell.name in tests:
                message = _try(lab, cell, cell.text, dict(namespace))
                passed = message is None
                points = cell.points if passed else 0
                status = "passed" if passed else "failed"
                outcomes[cell.name] = Outcome(status, points, cell.points, message or "")
    return outcomes


def _try(lab: Source, cell: Cell, text: str, namespace: dict[str, Any]) -> str | None:
    """Run a cell; None when it ran to its end, else what it raised, as a student would read it."""
    try:
        _execute(lab, cell, text, namespace)
    except (Exception, SystemExit) as error:
        told = isinstance(error, AssertionError) or _is_report(error)
        return str(error) or type(error).__name__ if told else f"{type(error).__name__}: {error}"
    return None


def _is_report(error: BaseException) -> bool:
    from utils import LaunchError

    return isinstance(error, LaunchError)


def _execute(lab: Source, cell: Cell, text: str, namespace: dict[str, Any]) -> None:
    """Run a cell under a readable file name, so that tracebacks show its lines, in ranks too."""
    name = f"<{lab.name.split('_')[0]} {cell.name}>"
    # no time of change: linecache never looks for such a file on disk
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), namespace)


@contextmanager
def _quiet() -> Iterator[None]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
