"""Which cells grading leaves out, and what is not asked twice: measurements as released, and oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from autograder import oracles
from autograder.engine import Engine
from autograder.idle import WHY, idle_cells, released_texts
from autograder.kept import keep
from autograder.oracles import OracleFailed, kept_oracles
from autograder.verdict import Verdict
from autograder.worker import plain_cells
from utils import RankFailed, check
from utils.selfcheck.notebook import Limits

MEASURE = "def measure():\n    times = {}\n    times['a'] = [1]\n    print(times)\n\n\nmeasure()"


def cell(source: str, **marks: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"nbgrader": marks} if marks else {}}


def left_out(*sources: str, released: tuple[str, ...] | None = None) -> list[str]:
    cells = [cell(source) for source in sources]
    idle = idle_cells(cells, frozenset(sources if released is None else released))
    return [sources[i] for i in sorted(idle)]


def test_a_measurement_that_nobody_uses_is_left_out_only_as_released() -> None:
    assert left_out(MEASURE) == [MEASURE]
    assert left_out(MEASURE + "\nmeasure()", released=(MEASURE,)) == []


def test_a_cell_that_another_names_is_run() -> None:
    assert left_out("x = 1", "%time x", "y = 2; print(y)") == ["y = 2; print(y)"]
    cells = [cell(MEASURE), cell("def answer():\n    return measure()", solution=True, grade_id="answer")]
    assert idle_cells(cells, frozenset([MEASURE])) == set()


def test_two_measurements_that_share_an_import_are_both_left_out() -> None:
    both = ["from utils import pictures\nprint(pictures)", "from utils import pictures\nprint(pictures, 2)"]
    assert left_out(*both) == both


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.manual_seed(3)", "import os\nos.environ['A'] = '1'", "%matplotlib inline",
        "import torch\ntorch.backends.mkldnn.enabled = False", "def f():\n    global x\n    x = 1\n\n\nf()",
        "import sys\nsys.path.append('.')", "from utils import *", "del answer", "setattr(print, 'a', 1)",
        "import numpy as np\nnp.random.seed(0)", "import torch\ntorch.set_num_threads(1)", "raise ValueError",
        "model.weight.data.zero_()", "import pathlib\npathlib.Path('a').write_text('a')",
    ],
)  # fmt: skip
def test_a_cell_that_may_change_what_others_meet_is_run(source: str) -> None:
    assert left_out(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.set_title('a')\nax.legend()",
        "rows = []\nfor n in (1, 2):\n    rows.append(n)\nprint(rows)",
        "squares = [k for k in range(3)]\nprint(squares)",
    ],
)  # fmt: skip
def test_what_only_draws_or_prints_is_left_out(source: str) -> None:
    assert left_out(source) == [source]


def test_a_comprehension_gives_no_name_away() -> None:
    cells = ["print([k for k in range(3)])", "k = 1\nprint(k)"]
    assert left_out(*cells) == cells


def test_only_plain_cells_are_left_out() -> None:
    for marks in ({"solution": True}, {"grade": True, "locked": True}, {"locked": True}):
        assert idle_cells([cell(MEASURE, grade_id="a", **marks)], frozenset([MEASURE])) == set()


def test_texts_are_those_of_all_kept_releases(tmp_path: Path) -> None:
    import nbformat

    for number, text in enumerate(("print(1)", "print(2)")):
        notebook = nbformat.v4.new_notebook(cells=[
            nbformat.v4.new_code_cell(text),
            nbformat.v4.new_code_cell(f"x = {number}", metadata={"nbgrader": {
                "grade_id": f"a{number}", "solution": True, "grade": False, "locked": False, "schema_version": 3}}),
        ])  # fmt: skip
        path = tmp_path / "lab.ipynb"
        nbformat.write(notebook, path)
        keep(tmp_path, "lab", path, path)
        wanted = {"print(1)"} if number == 0 else {"print(1)", "print(2)"}
        assert released_texts(tmp_path, "lab") == released_texts(tmp_path, "lab.0a1b") == wanted
    assert released_texts(tmp_path, "lab2") == frozenset()


def test_a_cell_left_out_keeps_its_number_and_says_why() -> None:
    def refuse() -> Any:
        raise AssertionError("no sandbox is needed")

    cells = plain_cells([cell(MEASURE)], frozenset([MEASURE]))
    (outcome,) = Engine(refuse, Limits(), 10).grade(cells)
    assert (outcome.number, outcome.status, outcome.message, outcome.outputs) == (1, "not run", WHY, [])


def summed(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def test_an_oracle_is_asked_once_and_nobody_changes_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "_kept", type(oracles._kept)())
    asked: list[tuple[Any, int | None]] = []
    inner = check.reference

    def told(fn: Any, *args: Any, ranks: int | None = 4, **options: Any) -> Any:
        asked.append((fn, ranks))
        return inner(fn, *args, ranks=ranks, **options)

    monkeypatch.setattr(check, "reference", told)
    with kept_oracles():
        first = check.reference(summed, torch.ones(2), ranks=2)
        first.values[0].zero_()
        again = check.reference(summed, torch.ones(2), ranks=2)
        assert again.values[0].tolist() == [2.0, 2.0] and again.trace.bytes_sent(0) == first.trace.bytes_sent(0)
        assert len(asked) == 1
        assert check.reference(summed, torch.ones(2), ranks=1).values[0].tolist() == [1.0, 1.0]
        assert check.reference(summed, torch.zeros(2), ranks=2).values[0].tolist() == [0.0, 0.0]
        assert check.reference(summed, torch.ones(2), ranks=2, seed=1).values[0].tolist() == [2.0, 2.0]
        assert len(asked) == 4
    assert check.reference is told


def failing(times: int, asked: list[int]) -> Any:
    """A `check.reference` that fails the first few times."""
    inner = check.reference

    def reference(fn: Any, *args: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) <= times:
            raise RankFailed("rank 0 was ended by SIGABRT")
        return inner(fn, *args, **options)

    return reference


def test_an_oracle_that_fails_is_asked_again_and_costs_no_student_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "_kept", type(oracles._kept)())
    code = "def one():\n    return 1\n\n\nassert check.reference(one, ranks=1).values == [1]"
    for times, asked in ((2, []), (3, [])):
        monkeypatch.setattr(check, "reference", failing(times, asked))
        verdict = Verdict(None, launch_s=10)
        verdict.share("imports", "from utils import check")
        if times == 2:
            assert (verdict.test("oracle", code, 60).status, len(asked)) == ("passed", 3)
        else:
            with pytest.raises(OracleFailed, match=r"the lab's own two failed 3 times on its ranks.*SIGABRT"):
                verdict.test("oracle", code.replace("one", "two"), 60)
        monkeypatch.undo()


def test_a_large_run_and_an_old_one_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "_kept", type(oracles._kept)())
    monkeypatch.setattr(oracles, "MOST", 2)
    with kept_oracles():
        for n in range(3):
            check.reference(summed, torch.full((2,), float(n)), ranks=1)
        assert len(oracles._kept) == 2
        monkeypatch.setattr(oracles, "MOST_BYTES", 7)
        check.reference(summed, torch.full((2,), 9.0), ranks=1)
        assert len(oracles._kept) == 2


def test_the_name_of_an_oracle_does_not_hang_on_which_strings_are_one_object() -> None:
    one = "".join(["a ", "text"])
    other = "".join(["a ", "text"])
    assert one is not other
    name = oracles._name(summed, ([one, one], {"k": one}), {"ranks": 2})
    assert name == oracles._name(summed, ([one, other], {"k": other}), {"ranks": 2})
    shared, apart = [1], [1]
    twice = oracles._name(summed, ([shared, shared],), {})
    assert twice != oracles._name(summed, ([shared, apart],), {})
    assert twice == oracles._name(summed, ([apart, apart],), {})
    assert name != oracles._name(summed, ([one, one], {"k": "an other"}), {"ranks": 2})
