"""The command line: what it says, and what it returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder import doctor as doctor_module
from autograder.__main__ import main
from autograder.course import REPO, Course

TOY = "lab90_toy"


@pytest.fixture
def here(toy_course: Course, monkeypatch: pytest.MonkeyPatch) -> Course:
    """The command line works on the toy course."""
    monkeypatch.setattr(Course, "default", classmethod(lambda cls: toy_course))
    return toy_course


def test_release_and_grade(here: Course, answered, tmp_path: Path, capsys) -> None:
    assert main(["release", "lab90"]) == 0
    assert "no answers in it" in capsys.readouterr().out
    wrong = answered(answer_steps="def answer_steps(p):\n    return 5")
    nbformat.write(wrong, tmp_path / "O'Neil, Ann.ipynb")
    report = tmp_path / "out" / "report.json"
    assert main(["grade", TOY, "--submissions", str(tmp_path), "--json", str(report)]) == 0
    shown = capsys.readouterr()
    assert "O'Neil, Ann    14 / 20" in shown.out
    assert "5 messages: count both halves of the ring" in shown.out
    assert "1/1" in shown.err  # the progress bar
    (submission,) = json.loads(report.read_text(encoding="utf-8"))["submissions"]
    assert (submission["student"], submission["score"], submission["status"]) == ("O'Neil, Ann", 14, "graded")
    feedback = here.data / "feedback" / "O'Neil, Ann" / TOY / f"{TOY}.html"
    assert feedback.is_file()


def test_an_unreadable_submission_makes_the_exit_code_1(here: Course, tmp_path: Path, capsys) -> None:
    (tmp_path / "Ann.ipynb").write_text("{", encoding="utf-8")
    assert main(["grade", TOY, "--submissions", str(tmp_path)]) == 1
    assert "1 of 1 submissions could not be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["release", "lab55"], "'lab55' names 0 labs"),
        (["grade", "lab90", "--submissions", "/nowhere"], "/nowhere is not a folder"),
    ],
)
def test_mistakes_get_one_sentence(here: Course, command: list[str], says: str, capsys) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert says in error[0]


def test_unknown_arguments_are_refused(here: Course) -> None:
    with pytest.raises(SystemExit):
        main(["release", "lab90", "--fast"])


def test_doctor_finds_this_machine_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor_module.doctor(Course(data=tmp_path / "data")) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert out.count("ok    ") == 9
    assert "2 ranks launch and all-reduce" in out


def test_doctor_says_what_is_wrong_and_what_to_do(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "file").write_text("")
    course = Course(data=tmp_path / "file" / "data")
    monkeypatch.setattr(doctor_module, "SHM_NEEDED", 2**60)
    monkeypatch.setattr(doctor_module.shutil, "which", lambda name: None)
    for name in ("kernel", "gloo", "ranks"):
        monkeypatch.setattr(doctor_module, name, lambda: "not looked at here")
    assert doctor_module.doctor(course) == 1
    out = capsys.readouterr().out
    assert "set COURSE_DATA" in out
    assert "pip install alembic" in out
    assert "--shm-size" in out
    assert out.strip().endswith("To mend: alembic, course data, shared memory.")


@pytest.mark.heavy
def test_nbgraders_own_command_runs_submissions_our_way(toy_course: Course, answered, tmp_path: Path) -> None:
    """`nbgrader autograde` with our settings gives the marks that our command gives."""
    config = tmp_path / "nbgrader_config.py"
    config.write_text(
        "from pathlib import Path\nfrom autograder.course import Course, nbgrader_config\n"
        f"course = Course(Path({str(toy_course.solutions)!r}), Path({str(tmp_path / 'labs')!r}), "
        f"Path({str(tmp_path / 'data')!r}))\nget_config().merge(nbgrader_config(course))\n"
    )
    folder = tmp_path / "data" / "submitted" / "Ann" / TOY
    folder.mkdir(parents=True)
    noisy = "import sys\nprint('noise', file=sys.stderr)\ndef answer_steps(p):\n    return 6"
    nbformat.write(answered(answer_steps=noisy), folder / f"{TOY}.ipynb")
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": programs, "HOME": str(tmp_path), "PYTHONPATH": str(REPO)}
    for command in ("generate_assignment", "autograde", "export"):
        arguments = [] if command == "export" else [TOY]
        nbgrader = [sys.executable, "-m", "nbgrader", command, *arguments]
        done = subprocess.run(nbgrader, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
    header, row = (tmp_path / "grades.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["score"] == "20.0"


def test_the_repositorys_nbgrader_config_is_this_courses(monkeypatch, tmp_path: Path) -> None:
    from traitlets.config import Config
    from traitlets.config.loader import PyFileConfigLoader

    from autograder.execute import ExecuteSubmission

    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    config: Config = PyFileConfigLoader("nbgrader_config.py", path=str(REPO)).load_config()
    assert config.CourseDirectory.source_directory == str(REPO / "solutions")
    assert config.CourseDirectory.release_directory == str(REPO / "labs")
    assert config.CourseDirectory.root == str(tmp_path)
    assert config.Autograde.autograde_preprocessors[0] is ExecuteSubmission
