"""What students get, and that it works from a clean folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest

from autograder.bundle import NAME, STAFF_ONLY, bundle, held_back, masked
from autograder.course import REPO, Course, UserError

TOY = "lab90_toy"


@pytest.fixture(scope="module")
def made(toy_course: Course, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(toy_course, tmp_path_factory.mktemp("bundle") / "out")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_it_holds_the_course_and_no_answer(made: Path) -> None:
    names = files(made)
    assert {"README.md", "LICENSE", "pyproject.toml", f"labs/{TOY}/{TOY}.ipynb", "utils/__init__.py"} <= names
    assert {f"notebooks/{path.name}" for path in (REPO / "notebooks").glob("*.ipynb")} <= names
    top = {name.split("/")[0] for name in names}
    assert top == {"README.md", "LICENSE", "pyproject.toml", "labs", "utils", "notebooks"}
    assert not [name for name in names if name.endswith(".pyc") or "checkpoint" in name]
    for name in names:
        if name.endswith(".ipynb") and name.startswith("labs/"):
            text = (made / name).read_text(encoding="utf-8")
            assert "BEGIN SOLUTION" not in text
            assert "BEGIN HIDDEN" not in text


def test_what_answers_a_later_lab_is_held_back(toy_course: Course, tmp_path: Path, monkeypatch) -> None:
    planner = ["utils/planner/schedules.py", "utils/planner/search.py"]
    later = ["utils/mesh", "utils/planner"]  # its formulas answer tasks of labs 01, 03 and 05
    assert held_back(["lab01_allreduce"]) == [*planner, *later, "utils/engine"]
    assert held_back(["lab05_pipeline"]) == [*planner, *later, "utils/engine"]
    assert held_back(["lab06_tensor_parallel"]) == [planner[1], *later, "utils/engine"]
    assert held_back(["lab05_pipeline", "lab07_mesh"]) == [planner[1], "utils/engine"]
    assert held_back(["lab07_mesh", "lab08_kv_cache"]) == ["utils/engine"]
    assert held_back(["lab07_mesh", "lab12_end_to_end"]) == []
    assert "utils/mesh" in held_back(["lab06_tensor_parallel"]) and "utils/mesh" not in held_back(["lab07_mesh"])
    answers = {"utils/selfcheck": "lab90", "utils/check.py": "lab77"}
    monkeypatch.setattr("autograder.bundle.ANSWERS_LAB", answers)
    names = files(bundle(toy_course, tmp_path / "out"))
    assert not [name for name in names if name.startswith("utils/selfcheck/")]
    assert "utils/check.py" in names


@pytest.mark.parametrize("lab", ["lab06_tensor_parallel", "lab08_kv_cache", "lab09_serving"])
def test_the_engine_is_hidden_from_the_labs_that_it_answers_and_stands_in_in_the_last(lab: str) -> None:
    assert "utils/engine" in masked(lab)
    assert "utils/engine" not in masked("lab12_end_to_end")


def test_its_requirements_are_the_projects_less_what_staff_need(made: Path) -> None:
    ours = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    theirs = tomllib.loads((made / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left_out = set(ours["dependencies"]) - set(theirs["dependencies"])
    assert {"nbgrader", "jupytext"} < {text.split(">")[0] for text in left_out} == set(STAFF_ONLY)
    assert theirs["version"] == ours["version"]


def test_a_zip_has_the_same_files_and_always_the_same_bytes(toy_course: Course, made: Path, tmp_path) -> None:
    first, second = bundle(toy_course, tmp_path / "a.zip"), bundle(toy_course, tmp_path / "sub" / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert {name.removeprefix(f"{NAME}/") for name in archive.namelist()} == files(made)


def test_it_overwrites_a_bundle_and_nothing_else(toy_course: Course, made: Path, tmp_path: Path) -> None:
    (made / "old.txt").write_text("")
    bundle(toy_course, made)
    assert not (made / "old.txt").exists()
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(UserError, match="not an earlier bundle"):
        bundle(toy_course, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def selfcheck(made: Path, notebook: Path) -> subprocess.CompletedProcess[str]:
    """Run the students' check from the bundle, with only the bundle's own modules of ours in reach."""
    env = {**os.environ, "PYTHONPATH": str(made)}
    code = "import sys, utils; from utils.selfcheck.__main__ import main; print(utils.__file__); "
    code += "sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, str(notebook)]
    return subprocess.run(command, cwd=made, env=env, capture_output=True, text=True, timeout=120)


def test_students_check_their_work_with_it(made: Path, answered, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.ipynb", tmp_path / "wrong.ipynb"
    nbformat.write(answered(), right)
    nbformat.write(answered(answer_steps="def answer_steps(p):\n    return 'many'"), wrong)
    good, bad = selfcheck(made, right), selfcheck(made, wrong)
    blank = selfcheck(made, made / "labs" / TOY / f"{TOY}.ipynb")
    assert (good.returncode, bad.returncode, blank.returncode) == (0, 1, 1), good.stdout + good.stderr
    assert good.stdout.startswith(str(made))
    assert "4 of 4 tests passed" in good.stdout
    assert "failed  steps_form: an int is asked for, not str" in bad.stdout
    assert "passed  pass_on_two" in bad.stdout
    assert "0 of 4 tests passed" in blank.stdout
    assert "failed  pass_on_two: not answered yet" in blank.stdout


@pytest.mark.heavy
def test_it_installs(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "--target", str(target), str(made)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in target.iterdir() if path.suffix != ".dist-info"} == {"utils"}
    assert files(made / "utils") <= files(target / "utils")
