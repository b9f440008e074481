"""Every lab through the whole grader: a right hand-in, a wrong one and one that hangs get what they deserve."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autograder.answers import Answer, read_answer
from autograder.course import REPO, Course
from autograder.grade import grade
from autograder.release import release
from autograder.sample import write_class
from autograder.sandbox import why_not
from autograder.sources.cells import Cell, Source, read_source
from autograder.sources.rules import touched_names

LABS = sorted(path.stem for path in (REPO / "solutions").glob("lab*.py"))
ALWAYS = ("lab01", "lab07", "lab12")  # collectives, eight ranks, a pretrained model; the others in make test-all
HANGS = "    while True:\n        pass"


def defined(cell: Cell) -> list[str]:
    return [node.name for node in ast.parse(cell.text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def hanging(lab: Source) -> tuple[str, str, list[str]]:
    """A solution whose functions never return: its task, its code, and the tests that use it, as few as can be."""
    touched, found = touched_names(lab), []
    for cell in lab.of_kind("solution"):
        users = [test for test, names in touched.items() if cell.name in names]
        functions = [node for node in ast.parse(cell.text).body if isinstance(node, ast.FunctionDef)]
        if users and len(functions) == len(defined(cell)) == 1:
            found.append((len(users), cell.name, f"def {functions[0].name}(*a, **k):\n{HANGS}", users))
    _, name, code, users = min(found)
    return name, code, users


def reference(lab: Source, name: str) -> str:
    text = next(cell.text for cell in lab.of_kind("solution") if cell.name == name)
    return "\n".join(line for line in text.splitlines() if "### BEGIN" not in line and "### END" not in line)


def hand_in(folder: Path, lab: Source, wrong: Answer) -> None:
    name, code, _ = hanging(lab)
    cells = "\n".join(f'# %% solution="{task}"\n{text}\n' for task, text in wrong.replace.items())  # edits carried out
    (folder / "right.py").write_text(f'# student: right\n\n# %% solution="{name}"\n{reference(lab, name)}\n')
    (folder / "wrong.py").write_text("# student: wrong\n\n" + cells, encoding="utf-8")
    (folder / "hangs.py").write_text(f'# student: hangs\n\n# %% solution="{name}"\n{code}\n', encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why")
@pytest.mark.parametrize(
    "name", [name if name.startswith(ALWAYS) else pytest.param(name, marks=pytest.mark.all) for name in LABS]
)
def test_a_right_a_wrong_and_a_hanging_hand_in(name: str, tmp_path: Path) -> None:
    course = Course(REPO / "solutions", tmp_path / "labs", tmp_path / "data")
    course.data.mkdir()
    lab = read_source(REPO / "solutions" / f"{name}.py")
    answers = sorted((REPO / "tests" / "answers" / name.split("_")[0]).glob("*.py"))
    wrong = next(answer for path in answers if (answer := read_answer(path, lab)).kind == "wrong")
    (tmp_path / "answers").mkdir()
    hand_in(tmp_path / "answers", lab, wrong)
    release(course, name)
    write_class(course, name, tmp_path / "answers", tmp_path / "class")
    results = {result.student: result for result in grade(course, name, tmp_path / "class")}
    assert {student: (one.status, one.flags) for student, one in results.items()} == {
        student: ("graded", []) for student in ("right", "wrong", "hangs")
    }
    lost = {student: {test.id: test.message for test in one.tests if test.points < test.max_points}
            for student, one in results.items()}  # fmt: skip
    assert lost["right"] == {} and results["right"].score == results["right"].max_score == 20
    assert results["right"].notes == []
    assert set(lost["wrong"]) == set(wrong.loses), lost["wrong"]
    assert all(text in lost["wrong"][test] for test, text in wrong.says.items()), lost["wrong"]
    assert set(lost["hangs"]) == set(hanging(lab)[2]), lost["hangs"]
    assert all("s" in message for message in lost["hangs"].values())
    for student in results:
        page = course.data / "feedback" / student / name / f"{name}.html"
        text = page.read_text(encoding="utf-8")
        assert "HIDDEN TESTS" not in text and "verdict" not in text
