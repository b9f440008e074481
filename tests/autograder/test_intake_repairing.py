"""What is mended in a notebook: each kind of damage alone with its sentence, and random mixtures of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from autograder.course import REPO, Course
from autograder.intake import collect, grade_id
from autograder.intake.decoding import Unreadable
from autograder.intake.matching import defined_names
from autograder.intake.repairing import repair
from autograder.release import release
from tests.autograder.intake_tools import TOY, Answered, cell_of, copied, extra, hand_in, place_of, put, released

LAB = "lab01_allreduce"


def mend(notebook: Any, course: Course) -> list[str]:
    """Repair, and hold the result to what every mended notebook must be."""
    original = released(course)
    notes = repair(notebook, original)
    hold(notebook, original, notes)
    return notes


def hold(notebook: Any, original: Any, notes: list[str]) -> None:
    wanted = [cell for cell in original.cells if grade_id(cell)]
    got = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    assert [grade_id(cell) for cell in got] == [grade_id(cell) for cell in wanted]
    for own, cell in zip(got, wanted, strict=True):
        assert own.metadata == cell.metadata
        assert (own.cell_type, own.id) == (cell.cell_type, cell.id)
        assert own.source == cell.source or cell.metadata.nbgrader.solution
    assert notebook.metadata == original.metadata
    nbformat.validate(notebook)
    assert all(note and "\n" not in note for note in notes)
    assert repair(copy.deepcopy(notebook), original) == []


def test_an_honest_submission_gets_no_note(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    notebook = answered()
    notebook.metadata.kernelspec = {"name": "my-env", "display_name": "My env", "language": "python"}
    notebook.cells.insert(3, extra("x = 1"))
    notebook.cells.append(nbformat.v4.new_markdown_cell("my notes"))
    for cell in notebook.cells:
        cell.source += "  \n" if cell.cell_type == "markdown" else "\n"
        cell.metadata["collapsed"] = False
    submission, got = hand_in(toy_course, tmp_path, notebook)
    assert (submission.problem, submission.notes, submission.release) == ("", [], None)
    assert [cell.source for cell in got.cells if not grade_id(cell)] == [
        cell.source for cell in notebook.cells if not grade_id(cell)
    ]


def test_deleted_cells_are_put_back_in_their_places(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    gone = {"imports", "pass_on_keeps", "answer_steps", "steps_value"}
    notebook.cells = [cell for cell in notebook.cells if cell.id not in gone]
    notebook.cells.append(extra("helper = 1"))
    assert mend(notebook, toy_course) == [
        "cells imports, pass_on_keeps, steps_value were missing and have been put back",
        "cell answer_steps was missing; nothing is answered in it",
    ]
    assert notebook.cells[place_of(notebook, "imports") - 1].cell_type == "markdown"


def test_a_test_that_is_put_back_comes_after_all_that_it_needs(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    at = place_of(notebook, "pass_on_two")
    notebook.cells[at : at + 1] = [extra("needed = 1")]
    mend(notebook, toy_course)
    assert notebook.cells[place_of(notebook, "pass_on_two") - 1].source == "needed = 1"


def test_copies_of_tests_go(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    notebook.cells.insert(1, copied(cell_of(notebook, "steps_form")))
    notebook.cells.append(copied(cell_of(notebook, "steps_form"), source="mine = 1"))
    assert mend(notebook, toy_course) == ["cell steps_form was there 3 times; the one in its place counts"]
    assert notebook.cells[-1].source == "mine = 1"
    assert [cell.source for cell in notebook.cells].count(cell_of(notebook, "steps_form").source) == 1


FIRST, SECOND = "def answer_steps(p):\n    return 1", "def answer_steps(p):\n    return 2"


@pytest.mark.parametrize("where", ["above", "below", "top", "end"])
def test_a_copy_that_is_blank_never_takes_the_answers_place(
    toy_course: Course, answered: Answered, where: str
) -> None:
    notebook, stub = answered(answer_steps=FIRST), copied(cell_of(released(toy_course), "answer_steps"))
    at = place_of(notebook, "answer_steps")
    notebook.cells.insert({"above": at, "below": at + 1, "top": 0, "end": len(notebook.cells)}[where], stub)
    assert mend(notebook, toy_course) == ["cell answer_steps was there 2 times; the answer in its place counts"]
    assert cell_of(notebook, "answer_steps").source == FIRST
    assert sum("answer_steps" in defined_names(cell.source) for cell in notebook.cells) == 1


def test_of_two_answers_the_last_in_its_place_counts(toy_course: Course, answered: Answered) -> None:
    notebook = answered(answer_steps=FIRST)
    notebook.cells.insert(
        place_of(notebook, "answer_steps") + 1, copied(cell_of(notebook, "answer_steps"), source=SECOND)
    )
    notebook.cells.append(copied(cell_of(notebook, "answer_steps"), source="def answer_steps(p):\n    return 3"))
    (note,) = mend(notebook, toy_course)
    assert note == "cell answer_steps was there 3 times; the answer in its place counts; a later copy was not run"
    assert cell_of(notebook, "answer_steps").source == SECOND
    assert notebook.cells[-1].cell_type == "raw"
    assert notebook.cells[place_of(notebook, "answer_steps") - 1].source == FIRST


def test_a_copied_cell_that_became_a_helper_runs(toy_course: Course, answered: Answered) -> None:
    notebook = answered(answer_steps=FIRST)
    twin = copied(cell_of(notebook, "answer_steps"), source="def helper():\n    return 1")
    notebook.cells.insert(place_of(notebook, "answer_steps"), twin)
    assert mend(notebook, toy_course) == []
    assert twin.cell_type == "code" and "nbgrader" not in twin.metadata


def test_an_answer_that_was_split_in_two(toy_course: Course, answered: Answered) -> None:
    for marks in ({}, None):
        notebook = answered(pass_on="def pass_on(x):\n    return helper(x)")
        part = copied(cell_of(notebook, "pass_on"), source="def helper(x):\n    return x")
        part.metadata = part.metadata if marks is None else {}
        at = place_of(notebook, "pass_on")
        notebook.cells.insert(at + 1, part)
        assert mend(notebook, toy_course) == []
        assert notebook.cells[at + 1] is part and part.cell_type == "code"


def test_marks_that_were_dropped_are_put_back(toy_course: Course, answered: Answered) -> None:
    for drop_ids in (False, True):
        notebook = answered(answer_steps=SECOND)
        notebook.cells.insert(4, extra("helper = 1"))
        for i, cell in enumerate(notebook.cells):
            cell.metadata = {}
            cell.id = f"new{i}" if drop_ids else cell.id
        notes = mend(notebook, toy_course)
        assert len(notes) == 1 and "marks were missing from cells imports, pass_on" in notes[0]
        assert cell_of(notebook, "answer_steps").source == SECOND


def test_an_edited_test_without_marks_is_known_by_its_likeness(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    for i, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"new{i}"
        if "changed its input" in cell.source:
            cell.source = cell.source.replace("[0.0, 1.0]", "[7.0, 7.0]")
    count = len(notebook.cells)
    notes = mend(notebook, toy_course)
    assert "cell pass_on_keeps is read-only and had been changed; its released text was used" in notes
    assert len(notebook.cells) == count


def test_the_answer_is_found_beside_a_blank_cell_with_the_marks(toy_course: Course, answered: Answered) -> None:
    notebook = answered(answer_steps=FIRST)
    at = place_of(notebook, "answer_steps")
    notebook.cells[at] = extra(FIRST)
    notebook.cells.insert(at + 1, cell_of(released(toy_course), "answer_steps"))
    mend(notebook, toy_course)
    assert cell_of(notebook, "answer_steps").source == FIRST


def test_kinds_points_marks_and_texts_are_restored(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    cell_of(notebook, "steps_form").cell_type = "markdown"
    cell_of(notebook, "answer_steps").cell_type = "raw"
    cell_of(notebook, "steps_value").metadata.nbgrader.points = 600
    cell_of(notebook, "pass_on_two").metadata.nbgrader.update(grade=False, solution=True, locked=False)
    cell_of(notebook, "pass_on_two").source = "pass"
    cell_of(notebook, "pass_on").metadata.nbgrader = {"grade_id": "pass_on", "schema_version": 1, "points": "many"}
    notebook.metadata.kernelspec = {"name": "ir", "language": "R", "display_name": "R"}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            cell.pop("outputs", None), cell.pop("execution_count", None)
    notes = mend(notebook, toy_course)
    assert set(notes) == {
        "cell steps_form had been turned into markdown and is code again",
        "cell answer_steps had been turned into raw and is code again",
        "the points of cell steps_value had been changed and are 6 again",
        "the course's marks of cell pass_on_two (grade, solution, locked) had been changed and are restored",
        "cell pass_on_two is read-only and had been changed; its released text was used",
        "the course's marks of cell pass_on (points, solution) had been changed and are restored",
        "the notebook was set to the kernel 'R'; it was run with Python",
    }


def test_cells_that_were_moved_run_in_the_labs_order(toy_course: Course, answered: Answered) -> None:
    notebook = answered()
    at, own = place_of(notebook, "answer_steps"), extra("own = 1")
    moved = notebook.cells.pop(at)
    notebook.cells += [moved, own]
    assert mend(notebook, toy_course) == ["the lab's cells had been moved; they were run in the lab's order"]
    assert notebook.cells[place_of(notebook, "answer_steps") + 1] is own


@pytest.mark.parametrize("cells", [[], ["imports"]])
def test_a_notebook_of_another_lab_is_said(toy_course: Course, cells: list[str]) -> None:
    shared = [cell for cell in released(toy_course).cells if cell.id in cells]
    notebook = nbformat.v4.new_notebook(cells=[extra("1"), *shared])
    with pytest.raises(Unreadable, match="none of this lab's cells"):
        repair(notebook, released(toy_course))
    notebook = nbformat.v4.new_notebook(cells=[extra("1")], metadata={"course": {"lab": "lab02_other"}})
    with pytest.raises(Unreadable, match="the one of lab02_other"):
        repair(notebook, released(toy_course))


def test_files_beside_the_notebook(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "Ada"
    put(folder / f"{TOY}.ipynb", answered())
    for name in ("numpy.py", "torch/__init__.py", "utils/ranks/api.py", "sitecustomize.py", "x.pth", "dist.so/a.so"):
        put(folder / name, "evil = 1")
    for name in ("random.cpython-311-x86_64-linux-gnu.so", "Torch.py", ".ipython/profile/startup/a.py"):
        put(folder / name, "evil = 1")
    put(folder / "data" / "points.csv", "1")
    put(folder / "picture.png", b"\x89PNG")
    put(folder / "my_helper.py", "x = 1")
    (submission,) = collect(tmp_path / "in", TOY, toy_course)
    target = toy_course.data / "submitted" / "Ada" / TOY
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == {
        f"{TOY}.ipynb",
        "data/points.csv",
        "picture.png",
        "my_helper.py",
        "dist.so/a.so",
    }
    assert "numpy.py was set aside: it would take the place of the module numpy" in submission.notes
    assert any("more files that take the place of modules" in note for note in submission.notes)


def test_too_much_beside_the_notebook_is_left_out(
    toy_course: Course, answered: Answered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autograder.intake.beside.MOST_BYTES", 1_000_000)
    put(tmp_path / "in" / "Ada" / f"{TOY}.ipynb", answered())
    for i in range(3):
        put(tmp_path / "in" / "Ada" / f"{i}.bin", b"x" * 400_000)
    (submission,) = collect(tmp_path / "in", TOY, toy_course)
    assert submission.notes == ["2.bin left out: files beside a notebook may take 1 MB, 1000 files"]


Damage = Callable[[Any, random.Random], None]


def _some(notebook: Any, rng: random.Random, answers: bool) -> Any:
    fits = [cell for cell in notebook.cells if grade_id(cell) and cell.metadata.nbgrader.get("solution") is answers]
    return rng.choice(fits) if fits else None


def delete_read_only(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, False):
        notebook.cells.remove(cell)


def copy_read_only(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, False):
        notebook.cells.insert(rng.randrange(len(notebook.cells)), copied(cell))


def copy_blank(notebook: Any, rng: random.Random) -> None:
    stub = rng.choice([cell for cell in STUBS if grade_id(cell)])
    notebook.cells.insert(rng.randrange(len(notebook.cells)), copied(stub))


def strip_marks(notebook: Any, rng: random.Random) -> None:
    whole = rng.random() < 0.5
    for cell in notebook.cells:
        if whole or rng.random() < 0.3:
            cell.metadata = {}


def new_ids(notebook: Any, rng: random.Random) -> None:
    for i, cell in enumerate(notebook.cells):
        cell.id = f"n{rng.randrange(10**9)}-{i}"


def to_markdown(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, rng.random() < 0.5):
        cell.cell_type = "markdown"
        cell.pop("outputs", None), cell.pop("execution_count", None)


def edit_marks(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, False):
        change = [{"points": 99}, {"locked": False}, {"grade": False}, {"schema_version": 1}, {"points": "x"}]
        cell.metadata.nbgrader.update(rng.choice(change))


def edit_text(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, False):
        cell.source = rng.choice(["", cell.source + "\nx = 1", cell.source[10:], "raise SystemExit"])


def move(notebook: Any, rng: random.Random) -> None:
    cell = notebook.cells.pop(rng.randrange(len(notebook.cells)))
    notebook.cells.insert(rng.randrange(len(notebook.cells)), cell)


def shuffle(notebook: Any, rng: random.Random) -> None:
    rng.shuffle(notebook.cells)


def own_cells(notebook: Any, rng: random.Random) -> None:
    for i in range(rng.choice([1, 4])):
        notebook.cells.insert(rng.randrange(len(notebook.cells)), extra(f"own_{i} = {rng.random()}"))


def delete_texts(notebook: Any, rng: random.Random) -> None:
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("#")]


def split(notebook: Any, rng: random.Random) -> None:
    if cell := _some(notebook, rng, True):
        at = notebook.cells.index(cell)
        part = extra("def part():\n    pass")
        part.metadata = copy.deepcopy(cell.metadata)
        notebook.cells.insert(at + rng.randrange(2), part)


def trailing_blanks(notebook: Any, rng: random.Random) -> None:
    for cell in notebook.cells:
        cell.source = "\n".join(line + " " * rng.randrange(2) for line in cell.source.splitlines()) + "\n"


def other_kernel(notebook: Any, rng: random.Random) -> None:
    notebook.metadata = rng.choice([{}, {"kernelspec": {"name": "ir"}}, {"language_info": {"name": "julia"}}])


DAMAGE: list[Damage] = [
    delete_read_only, copy_read_only, copy_blank, strip_marks, new_ids, to_markdown, edit_marks, edit_text, move,
    shuffle, own_cells, delete_texts, split, trailing_blanks, other_kernel,
]  # fmt: skip
STUBS: list[Any] = []


@pytest.fixture(scope="module")
def first_lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The real lab as released, and answered."""
    root = tmp_path_factory.mktemp("lab01")
    (root / "solutions").mkdir()
    put(root / "solutions" / f"{LAB}.py", (REPO / "solutions" / f"{LAB}.py").read_text(encoding="utf-8"))
    course = Course(root / "solutions", root / "labs", root / "data")
    original = nbformat.read(release(course, LAB), as_version=4)
    instructors = nbformat.read(course.solutions / LAB / f"{LAB}.ipynb", as_version=4)
    whole = copy.deepcopy(original)
    for own, full in zip(whole.cells, instructors.cells, strict=True):
        if own.metadata.get("nbgrader", {}).get("solution"):
            own.source = full.source
    STUBS[:] = [cell for cell in original.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return original, whole


@pytest.mark.parametrize("seed", range(60))
def test_any_mixture_of_damage_leaves_every_answer(first_lab: tuple[Any, Any], seed: int) -> None:
    original, whole = first_lab
    rng, notebook = random.Random(seed), copy.deepcopy(whole)
    done = [rng.choice(DAMAGE) for _ in range(rng.choice([1, 2, 4, 8]))]
    for damage in done:
        damage(notebook, rng)
    notes = repair(notebook, original)
    names = [damage.__name__ for damage in done]
    hold(notebook, original, notes)
    for cell in whole.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            got = [line.rstrip() for line in cell_of(notebook, grade_id(cell)).source.rstrip().splitlines()]
            assert got == [line.rstrip() for line in cell.source.splitlines()], (grade_id(cell), names)
    told = {delete_read_only, copy_read_only, edit_text}
    assert notes or not told & set(done), names
