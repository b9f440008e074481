"""The answers runner: what it runs, what it says, and which answer files it refuses."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

from autograder.answers import blank, kept_tests, read_answer, run_lab, touching_tests
from autograder.sources.cells import Source, SourceError, parse_source
from autograder.sources.edits import edited

LAB = """\
# %% shared="imports"
import torch
import torch.distributed as dist
from utils import launch
# %% solution="double"
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
# %% solution="total"
def total(x):
    ### BEGIN SOLUTION
    x = double(x) / 2
    dist.all_reduce(x)
    return x
    ### END SOLUTION
# %% test="double_values" points=9
run = launch(lambda: [double(n) for n in (3, -1)], ranks=None)
assert run.value == [6, -2], f"double(3) and double(-1) are 6 and -2, not {run.value}"
# %% test="total_values" points=8
run = launch(lambda: total(torch.tensor([1.0 + dist.get_rank()])), ranks=2)
for rank, value in enumerate(run.values):
    assert value.item() == 3, f"rank {rank} has {value.item()}, not 3"
# %% test="total_type" points=3
leftover = 1
assert launch(lambda: total(torch.ones(2)), ranks=1).values[0].dtype == torch.float32
# %%
raise RuntimeError("a plain cell never runs here")
"""


@pytest.fixture
def lab() -> Source:
    return parse_source(LAB, "lab77_double.py")


def test_reference_passes_and_plain_cells_do_not_run(lab: Source) -> None:
    outcomes = run_lab(lab)
    assert [(o.status, o.points, o.max_points) for o in outcomes.values()] == [
        ("passed", 9, 9),
        ("passed", 8, 8),
        ("passed", 3, 3),
    ]
    assert list(outcomes) == ["double_values", "total_values", "total_type"]


def test_a_blank_scores_nothing_and_is_told_so(lab: Source) -> None:
    outcomes = run_lab(lab, blank(lab))
    assert [o.points for o in outcomes.values()] == [0, 0, 0]
    assert all("NotImplementedError" in o.message for o in outcomes.values())


def test_only_the_tests_that_are_named_run(lab: Source) -> None:
    outcomes = run_lab(lab, {"double": "def double(x):\n    return x + x\n"}, ["double_values"])
    assert list(outcomes) == ["double_values"] and outcomes["double_values"].points == 9


def test_messages_are_what_the_student_reads(lab: Source) -> None:
    outcomes = run_lab(lab, {"double": "def double(x):\n    return x ** 2\n"}, ["double_values"])
    assert outcomes["double_values"].message == "double(3) and double(-1) are 6 and -2, not [9, 1]"


def test_an_error_in_a_rank_shows_the_line_of_the_answer(lab: Source) -> None:
    outcomes = run_lab(lab, {"total": "def total(x):\n    return x / nothing_here\n"}, ["total_values"])
    message = outcomes["total_values"].message
    assert "return x / nothing_here" in message and "lab77 total" in message


def test_a_solution_that_does_not_run_leaves_its_names_undefined(lab: Source) -> None:
    for text in ("def double(x) return x", "import no_such_module\ndef double(x):\n    return 2 * x\n"):
        outcomes = run_lab(lab, {"double": text})
        assert [o.points for o in outcomes.values()] == [0, 0, 0]
        assert "double" in outcomes["double_values"].message


def test_a_hang_ends_at_the_limit_and_the_next_test_runs(lab: Source) -> None:
    stuck = "def double(x):\n    while True:\n        pass\n"
    other = "def total(x):\n    dist.all_reduce(x)\n    return x\n"
    outcomes = run_lab(lab, {"double": stuck, "total": other}, seconds=4)
    assert [o.status for o in outcomes.values()] == ["failed", "passed", "passed"]


def test_nothing_is_printed_and_nothing_is_left(lab: Source, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.environ.get("UTILS_TIMEOUT")
    run_lab(lab, {"double": "print('hello')\ndef double(x):\n    return 2 * x\n"}, ["double_values"])
    assert capsys.readouterr() == ("", "")
    assert os.environ.get("UTILS_TIMEOUT") == before
    assert "double(3)" in "".join(linecache.cache["<lab77 double_values>"][2])


def test_tests_do_not_see_each_others_names(lab: Source) -> None:
    text = LAB + '# %% test="late" points=1\nassert leftover\n'
    assert "leftover" in run_lab(parse_source(text), tests=["total_type", "late"])["late"].message


ANSWER = """\
# kind: wrong
# about: squares
#   instead of doubling
# loses: double_values
# says: "double_values": "not [9"
# %% solution="double"
def double(x):
    return x * x
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "squares.py"
    path.write_text(text)
    return path


def test_an_answer_file_is_read(lab: Source, tmp_path: Path) -> None:
    answer = read_answer(write(tmp_path, ANSWER), lab)
    assert (answer.name, answer.kind, answer.about) == ("squares", "wrong", "squares instead of doubling")
    assert answer.loses == ("double_values",) and answer.says == {"double_values": "not [9"}
    assert list(answer.replace) == ["double"]


EDIT = """\
# kind: wrong
# about: never halves
# loses: total_values
# %% edit="total"
# replace
    x = double(x) / 2
# by
    x = double(x)

# replace
    return x
# by
    x += 1
    x -= 1
    return x
"""


def test_an_edit_changes_lines_of_the_reference(lab: Source, tmp_path: Path) -> None:
    answer = read_answer(write(tmp_path, EDIT), lab)
    wanted = "def total(x):\n    x = double(x)\n    dist.all_reduce(x)\n    x += 1\n    x -= 1\n    return x"
    assert answer.replace == {"total": wanted}
    assert "rank 0 has 6.0, not 3" in run_lab(lab, answer.replace, ["total_values"])["total_values"].message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    x = double(x) / 2\n", "    x = double(x)/2\n", "line 5: the lines to replace must stand"),
        ("    x = double(x) / 2\n", "    x = double(x) / 2\n    y = 1\n", "0 times: x = double(x) / 2 (and 1 more)"),
        ("    x = double(x) / 2\n", "\n", "there are no lines after `# replace`"),
        ("# replace\n    x", "    x", "an edit begins with `# replace`, not with 'x = double(x) / 2'"),
        ("    x -= 1\n    return x\n", "# replace\n    return x\n", "an edit is `# replace`"),
        ('edit="total"', 'edit="totals"', "has no solution totals"),
        ("# %% edit", '# %% solution="total"\ndef total(x):\n    return x\n# %% edit', "each task once"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(lab: Source, tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in EDIT
    with pytest.raises(SourceError) as error:
        read_answer(write(tmp_path, EDIT.replace(old, new)), lab)
    assert says in str(error.value) and str(error.value).startswith("squares.py")


def test_an_edit_may_be_of_another_answer_beside_it(lab: Source, tmp_path: Path) -> None:
    whole = "# kind: right\n# about: x\n# %% solution=\"total\"\ndef total(x):\n    return x.sum()\n"
    (tmp_path / "other.py").write_text(whole, encoding="utf-8")
    edit = '# kind: wrong\n# about: y\n# loses: total_values\n# edits: other\n# %% edit="total"\n# replace\n'
    edit += "    return x.sum()\n# by\n    return x.mean()\n"
    assert read_answer(write(tmp_path, edit), lab).replace == {"total": "def total(x):\n    return x.mean()"}
    for name in ("nobody", "squares"):  # there is none, and itself
        with pytest.raises(SourceError, match=f"there is no answer {name} beside it"):
            read_answer(write(tmp_path, edit.replace("edits: other", f"edits: {name}")), lab)


def test_lines_that_stand_twice_are_no_place_for_an_edit() -> None:
    with pytest.raises(ValueError, match="once, not 2 times: y = 1"):
        edited("y = 1\ny = 1", "# replace\ny = 1\n# by\ny = 2")


def test_kept_tests_begin_with_those_that_the_answer_touches(lab: Source, tmp_path: Path) -> None:
    text = ANSWER.replace("double_values", "total_values").replace('"double"', '"total"')
    answer = read_answer(write(tmp_path, text), lab)
    assert kept_tests(answer, lab) == ["total_type", "double_values"]
    assert touching_tests(answer, lab) == ["total_values", "total_type"]
    assert touching_tests(read_answer(write(tmp_path, ANSWER), lab), lab) == [
        "double_values",
        "total_values",
        "total_type",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("# loses: double_values", "# loses: double_value", "has no test double_value"),
        ('solution="double"', 'solution="doubling"', "has no solution doubling"),
        ("# kind: wrong", "# kind: wrng", "kind is right or wrong"),
        ("# kind: wrong", "# kind: right", "a wrong answer loses a test, a right one none"),
        ("# loses: double_values\n", "", "a wrong answer loses a test, a right one none"),
        ('"not [9"', "not [9", 'write says as "test"'),
        ("# kind: wrong", "# kid: wrong", "cannot read the header line 'kid: wrong'"),
        ("# about: squares\n#   instead of doubling\n", "", "about is missing"),
        ('# %% solution="double"\n', "# %%\n", "an answer has solution cells"),
        ('"double_values": "not', '"total_values": "not', "has a message and does not lose it"),
    ],
)
def test_a_wrong_answer_file_is_refused(lab: Source, tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in ANSWER
    with pytest.raises(SourceError) as error:
        read_answer(write(tmp_path, ANSWER.replace(old, new)), lab)
    assert says in str(error.value) and str(error.value).startswith("squares.py")
