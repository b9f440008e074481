"""How outcomes of cells become what nbgrader scores and what students read."""

from __future__ import annotations

import nbformat
import pytest
from nbgrader.utils import determine_grade

from autograder.execute import record
from autograder.hidden import scrub
from utils.selfcheck.cell import CellRun
from utils.selfcheck.notebook import Limits, Outcome, judge, kind_of, run_cells
from utils.selfcheck.session import KernelSession

TEST = """def probe():
    return answer(4)
assert launch(probe).value == 1
### BEGIN HIDDEN TESTS
assert launch(lambda: answer(977)).value == 3
### END HIDDEN TESTS"""
STDERR = {"output_type": "stream", "name": "stderr", "text": "Warning"}


def test_cell(points: float = 3):
    meta = {"grade": True, "solution": False, "locked": True, "grade_id": "t", "points": points}
    return nbformat.v4.new_code_cell(TEST, metadata={"nbgrader": meta | {"cell_type": "code", "schema_version": 3}})


test_cell.__test__ = False


def value(text: str) -> dict:
    return {"output_type": "execute_result", "data": {"text/plain": text}, "metadata": {}, "execution_count": 1}


def score(status: str, outputs: list[dict], message: str = "") -> float:
    cell = test_cell()
    record(cell, Outcome(0, 1, "t", "test", status, message, points=3, outputs=outputs))
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    return determine_grade(cell)[0]


@pytest.mark.parametrize(
    ("status", "outputs", "points"),
    [
        ("passed", [], 3),
        ("passed", [STDERR], 3),
        ("passed", [value("1.5")], 1.5),  # an author's partial credit
        ("passed", [value("99")], 3),
        ("passed", [value("-1")], 3),
        ("passed", [value("<Figure>")], 3),
        ("failed", [value("3")], 0),
        ("stopped", [STDERR], 0),
        ("not run", [], 0),
    ],
)
def test_nbgrader_scores_what_was_decided(status: str, outputs: list[dict], points: float) -> None:
    assert score(status, outputs, "" if status == "passed" else "why") == points


def test_the_message_takes_the_place_of_the_traceback() -> None:
    cell = test_cell()
    traceback = {"output_type": "error", "ename": "CheckFailed", "evalue": "x", "traceback": TEST.splitlines()}
    report = "rank 0 raised ValueError: bad\n  assert launch(lambda: answer(977)).value == 3\nlook at line 2"
    record(cell, Outcome(0, 1, "t", "test", "failed", report, points=3, outputs=[traceback]))
    assert [output.traceback for output in cell.outputs] == [["rank 0 raised ValueError: bad\nlook at line 2"]]
    assert cell.metadata["grading"]["status"] == "failed"


def test_what_the_visible_part_says_too_is_no_secret() -> None:
    source = "x = compute(1)\n### BEGIN HIDDEN TESTS\nx = compute(1)\ny = compute(7)\n### END HIDDEN TESTS"
    assert scrub("x = compute(1)\n> y = compute(7)\nend", source) == "x = compute(1)\nend"


class Pretended:
    """A session whose runs are written down beforehand."""

    def __init__(self, runs: list[CellRun], dies_at: int = 99) -> None:
        self.runs, self.asked, self.dies_at = runs, [], dies_at

    def run(self, code: str, limit: float) -> CellRun:
        self.asked.append((code, limit))
        return self.runs[len(self.asked) - 1]

    @property
    def alive(self) -> bool:
        return len(self.asked) < self.dies_at


def code(source: str, **meta: object):
    nbgrader = {"grade": False, "solution": False, "locked": False, **meta} if meta else {}
    return nbformat.v4.new_code_cell(source, metadata={"nbgrader": nbgrader} if nbgrader else {})


CELLS = [
    nbformat.v4.new_markdown_cell("# text"),
    code("a = 1", locked=True, grade_id="imports"),
    code(""),
    code("def f():\n    loop()", solution=True, grade_id="f"),
    code("check(f)", grade=True, locked=True, grade_id="t", points=2),
    code("plot()"),
]


@pytest.mark.parametrize(
    ("run", "status", "message"),
    [
        (CellRun("ok"), "passed", ""),
        (CellRun("error", ename="CheckFailed", evalue="ranks differ"), "failed", "ranks differ"),
        (CellRun("error", ename="AssertionError"), "failed", "a check of this cell did not hold"),
        (CellRun("error", ename="ValueError", evalue="no"), "failed", "ValueError: no"),
        (CellRun("stopped", line=1), "stopped", "stopped after 5 s"),
        (CellRun("stopped", ename="LaunchInterrupted", evalue="rank 1"), "stopped", "stopped after 5 s\nrank 1"),
        (CellRun("flooded"), "stopped", "stopped: it printed more than 10 million characters"),
        (CellRun("error", ename="NotImplementedError"), "failed", "not answered yet: a cell that this needs "
         "still raises NotImplementedError"),
    ],
)  # fmt: skip
def test_a_tests_outcome_in_words(run: CellRun, status: str, message: str) -> None:
    session = Pretended([CellRun("ok"), CellRun("ok"), run, CellRun("ok")])
    outcomes = list(run_cells(session, CELLS, Limits(test_s=5, cell_s=4)))
    assert [(one.index, one.number, one.kind) for one in outcomes] == [
        (1, 1, "shared"), (3, 2, "solution"), (4, 3, "test"), (5, 4, "plain")]  # fmt: skip
    assert (outcomes[2].status, outcomes[2].message, outcomes[2].points) == (status, message, 2)
    assert [limit for _, limit in session.asked] == pytest.approx([4, 4, 5, 4])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ProcessExitedException", "process 0 terminated with exit code 1"),
        ("AttributeError", "Can't get attribute 'work' on <module '__main__' (built-in)>"),
        ("RankFailed", "rank 0 raised ProcessExitedException, line 3 of cell 2: process 0 terminated with exit code 1"),
    ],
)
def test_a_spawned_function_of_a_notebook_is_told_of_launch(kind: str, text: str) -> None:
    outcome = Outcome(0, 1, "ring", "solution", "not run")
    judge(outcome, CellRun("error", ename=kind, evalue=text, line=1), 30, 1, "mp.spawn(work, nprocs=2)")
    assert "start ranks with utils.launch" in outcome.message and text in outcome.message
    judge(outcome, CellRun("error", ename="AttributeError", evalue="no attribute 'x'"), 30, 1, "a.x")
    assert "utils.launch" not in outcome.message


def test_a_students_cell_is_told_its_line_and_a_dead_kernel_runs_nothing_more() -> None:
    session = Pretended([CellRun("ok"), CellRun("stopped", line=2)], dies_at=2)
    outcomes = list(run_cells(session, CELLS, Limits(cell_s=4)))
    assert outcomes[1].message == "stopped after 4 s; it was at line 2: loop()"
    assert [one.status for one in outcomes] == ["passed", "stopped", "not run", "not run"]
    assert outcomes[3].message == "not run: cell 2 (f) did not stop after 4 s, so the process was ended"


def test_the_whole_notebook_has_a_limit() -> None:
    session = Pretended([CellRun("ok")] * 4)
    outcomes = list(run_cells(session, CELLS, Limits(notebook_s=1e-9)))
    assert {one.status for one in outcomes} == {"not run"}
    assert session.asked == []


def test_a_limit_is_above_zero() -> None:
    with pytest.raises(ValueError, match="cell_s is 0"):
        Limits(cell_s=0)


def test_kinds_of_cells() -> None:
    assert [kind_of(cell) for cell in CELLS] == ["text", "shared", "plain", "solution", "test", "plain"]


def test_numbers_of_cells_are_those_that_the_notebook_shows(tmp_path) -> None:
    with KernelSession(tmp_path) as session:
        cells = [code("1"), code("  "), code("7")]
        last = list(run_cells(session, cells))[-1]
    assert last.number == 2
    assert last.outputs[0]["execution_count"] == 2
