"""Students at work on a hub that is killed in the middle: nothing is lost or doubled, and the count would tell."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from autograder.course import REPO
from autograder.hub.exchange import copy_plain
from benchmarks.hub_load.answers import LAB, works
from benchmarks.hub_load.counting import Count
from benchmarks.hub_load.klass import LoadClass
from benchmarks.hub_load.load import Asked, Load
from benchmarks.hub_load.plan import plan
from tests.hub.a_class import processes_of, wait_for

needs_hub = pytest.mark.skipif(not find_spec("jupyterhub"), reason="make test-hub has an environment with JupyterHub")
pytestmark = [pytest.mark.hub, pytest.mark.timeout(600), needs_hub]
STUDENTS = 3


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    """Three students' afternoon, with a kill after the first has submitted; the class is up while tests look."""
    plans = plan(STUDENTS, spread_s=3, seed=0, kill=True)
    with LoadClass([one.name for one in plans]) as klass:
        load = Load(klass, plans, Asked(STUDENTS, 3, kill_at=0.5))
        load.run()
        yield load
    assert not klass.root.exists() and processes_of(klass.root) == []


def counts(found: Count) -> tuple[int, list[str], list[str], list[str]]:
    return found.submitted, sorted(found.lost), sorted(found.doubled), sorted(found.misgraded)


def test_nothing_is_lost_or_doubled_when_the_hub_is_killed(load: Load) -> None:
    assert [one.problem for one in load.students] == [""] * STUDENTS
    figures = load.figures()
    assert {name: figures[name] for name in ("students", "submitted", "lost", "doubled", "misgraded")} == {
        "students": 3, "submitted": 3, "lost": 0, "doubled": 0, "misgraded": 0,
    }  # fmt: skip
    assert (figures["killed"], figures["restarted"], figures["refused_while_down"]) == (1, 0, 1)
    assert 1 < figures["back_s"] < 180 and 20 < figures["mib_per_student"] < 1000
    assert all(figures[f"{step}_s"] > 0 for step in ("server", "fetch", "validate", "submit", "grade"))


def test_each_hand_in_was_made_as_planned(load: Load) -> None:
    """One student handed in twice; what each is worth differs, so that points could not be anybody's."""
    assert sorted(len(one.handed_in) for one in load.students) == [1, 1, 2]
    assert len({print_ for one in load.students for print_ in one.handed_in}) == 4
    assert sorted(one.points for one in load.known().values()) == [0, works()["mean_over_ranks"].points, 20]


def test_a_hand_in_that_is_dropped_is_counted_lost(load: Load) -> None:
    for place in (load.klass.layout.data / "submitted" / "s001", load.klass.layout.inbound("s003")):
        away = place.with_name(f".{place.name}-away")
        place.rename(away)
        place.mkdir()
        try:
            found = load.count()
        finally:
            place.rmdir()
            away.rename(place)
        name = place.name
        assert counts(found) == (3, [name], [], [])
        assert name in found.lost[name]
    assert counts(load.count()) == (3, [], [], [])


def test_the_earlier_of_two_hand_ins_in_place_of_the_last_is_counted_lost(load: Load) -> None:
    layout = load.klass.layout
    (notebook,) = (layout.data / "submitted" / "s001").glob("*/*.ipynb")
    (earlier, _) = sorted(path for path in layout.inbound("s001").iterdir() if LAB in path.name)
    kept = notebook.read_bytes()
    notebook.write_bytes((earlier / notebook.name).read_bytes())
    try:
        found = load.count()
    finally:
        notebook.write_bytes(kept)
    assert found.lost == {"s001": "s001 handed in 2 times, and hand-in 1 was collected in place of the last."}


def test_a_hand_in_that_is_there_twice_is_counted_doubled(load: Load) -> None:
    data, inbound = load.klass.layout.data, load.klass.layout.inbound("s002")
    (one,) = [path for path in inbound.iterdir() if LAB in path.name]
    for source, copy in (
        (one, inbound / f"{one.name[:-4]}abcd"),
        (data / "submitted" / "s002" / LAB, data / "submitted" / "s002" / f"{LAB}_again"),
        (data / "submitted" / "s002" / LAB, data / "submitted" / "somebody" / LAB),
    ):
        new = copy if copy.parent.exists() else copy.parent
        copy_plain(source, copy)
        try:
            found = load.count()
        finally:
            shutil.rmtree(new)
        assert counts(found) == (3, [], ["s002"], [])
    assert counts(load.count()) == (3, [], [], [])


def test_marks_that_are_missing_or_wrong_are_counted(load: Load) -> None:
    book = load.klass.layout.data / "gradebook.db"
    kept = book.read_bytes()
    changes = {
        "delete from submitted_assignment where student_id = 's002'": (["s002"], []),
        "update grade set auto_score = auto_score + 1": ([], ["s001", "s002", "s003"]),
    }
    for change, (lost, misgraded) in changes.items():
        try:
            with closing(sqlite3.connect(book)) as opened:
                opened.execute(change)
                opened.commit()
            found = load.count()
        finally:
            _put_back(book, kept)
        assert counts(found) == (3, lost, [], misgraded)


def _put_back(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:  # the same file: it stays its owner's
        file.write(content)
        file.truncate()


def test_what_cannot_be_asked_for_is_told_in_a_sentence() -> None:
    for words, said in (
        (["--students", "2"], "--students is 2: give 3 to 200."),
        (["--spread", "-1"], "--spread is -1: give 0 to 3600 seconds."),
        (["--kill-at", "1"], "--kill-at is 1: give a share from 0 to below 1, such as 0.5."),
        (["--students", "many"], "argument --students"),
        (["--no-kill", "--kill-at", "0.5"], "not allowed with"),
    ):
        argv = [sys.executable, "benchmarks/hub.py", *words]
        done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and said in done.stderr and not done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing(number: signal.Signals) -> None:
    argv = [sys.executable, "benchmarks/hub.py", "--students", "3"]
    with subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        folder = Path(re.search(r"Making a class in (\S+)", process.stderr.readline()).group(1))
        wait_for("`hub init` runs", lambda: processes_of(folder), 60)
        process.send_signal(number)
        printed, said = process.communicate(timeout=200)
    assert process.returncode == 1 and not printed
    assert said.splitlines()[-1] == "Stopped; nothing of it is left." and "Traceback" not in said
    assert not folder.exists() and processes_of(folder) == []
