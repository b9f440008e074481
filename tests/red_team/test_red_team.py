"""Every attack scores what its answer deserves, reads and changes nothing, and is flagged where it tried to forge."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from autograder.engine import Engine
from autograder.sandbox import Limits as Walls
from autograder.sandbox import open_sandbox, why_not
from autograder.sources.build import build_lab
from autograder.sources.cells import read_source
from autograder.worker import plain_cells
from tests.red_team.attacks import ATTACKS, Attack
from utils.selfcheck.notebook import Limits, Outcome

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")]
KEPT = {"gradebook.db": "marks of all", "solutions/key.py": "answer = 156", "submitted/other/lab.ipynb": "{}",
        "runs/kept.json": "[]", "results/a.json": "{}"}  # fmt: skip
HIDDEN = ("secret_sum", "assert run.value")  # of the hidden parts, what no message and no output may quote
WALLS = Walls(memory_bytes=1200 << 20, address_bytes=3 << 30, processes=60, disk_bytes=256 << 20, tasks=300)


@cache
def lab() -> str:
    return json.dumps(plain_cells(build_lab(read_source(Path(__file__).parent / "lab91_walls.py")).cells))


@dataclass
class World:
    """What lies outside of the sandboxes: a course folder and something that listens."""

    canary: Path
    port: int

    def fill_in(self, text: str) -> str:
        return text.replace("CANARY", str(self.canary)).replace("PORT", str(self.port))

    def contents(self) -> dict[str, str]:
        found = {str(p.relative_to(self.canary)): p for p in self.canary.rglob("*") if p.is_file()}
        return {name: path.read_text() for name, path in found.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("course")
    for name, text in KEPT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    root.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0canary")
        unix.listen()
        yield World(root, tcp.getsockname()[1])


def write_files(attack: Attack, world: World, folder: Path) -> None:
    """`-> x` is a link, `| x` a pipe, `+ n` n bytes of nothing, anything else the text of a file."""
    for name, text in attack.files.items():
        path, text = folder / name, world.fill_in(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        elif text.startswith("| "):
            os.mkfifo(path)
        elif text.startswith("+ "):
            path.touch()
            os.truncate(path, int(text[2:]))
        else:
            path.write_text(text)


def grade(cells: dict[str, str], folder: Path | None = None) -> tuple[dict[str, Outcome], list[str]]:
    notebook: list[dict[str, Any]] = json.loads(lab())
    for cell in notebook:
        name = cell["metadata"]["nbgrader"].get("grade_id")
        cell["source"] = cells.get(name, cell["source"])
    engine = Engine(lambda: open_sandbox("bubblewrap", folder, WALLS), Limits(20, 6, 120), 8)
    outcomes = {outcome.name: outcome for outcome in engine.grade(notebook)}
    return outcomes, engine.flags


def of_sandboxes() -> list[psutil.Process]:
    """Processes of this machine that came out of a sandbox: those we started, but for the warm ones."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words, ended = process.cmdline(), process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue  # it has just ended
        if not ended and ("613" in words or "bwrap" in words[:1]):
            found.append(process)
    return found


def test_a_sandbox_can_be_had_here() -> None:
    """Fails where the attacks below could not be tried, with the reason."""
    assert why_not("bubblewrap") == ""


def test_there_are_attacks_of_every_kind() -> None:
    kinds = {attack.kind for attack in ATTACKS}
    assert len(ATTACKS) >= 40 and len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert kinds == {"patching", "values", "frames", "traces", "spying", "writing", "files", "network", "outliving",
                     "exhausting"}  # fmt: skip


def test_the_reference_has_full_marks_and_no_flag() -> None:
    outcomes, flags = grade({})
    assert [o.message for o in outcomes.values() if o.status != "passed"] == [] and flags == []


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.kind}-{attack.name.replace(' ', '_')}")
def test_attack(attack: Attack, world: World, tmp_path: Path) -> None:
    write_files(attack, world, tmp_path)
    outcomes, flags = grade({name: world.fill_in(code) for name, code in attack.cells.items()}, tmp_path)
    tests = {name: o for name, o in outcomes.items() if o.kind == "test"}
    lost = {name: o.message for name, o in tests.items() if o.status != "passed"}
    assert set(lost) == set(attack.loses), lost
    assert sum(o.points for o in tests.values()) == 20
    assert all(lost.values()) and attack.says in " ".join(lost.values()), lost
    flagged = " | ".join(flags)
    assert bool(flags) == bool(attack.flagged), flagged
    assert not isinstance(attack.flagged, str) or attack.flagged in flagged, flagged
    assert not attack.fooled or flagged  # evidence that was believed is looked at by a person
    look_through(outcomes, flagged)
    assert world.contents() == KEPT
    assert_nothing_runs()


def look_through(outcomes: dict[str, Outcome], flagged: str) -> None:
    """Nothing that must not be told is in what came out, and all of it is plain text."""
    shown = json.dumps([o.outputs for o in outcomes.values()])
    messages = "\n".join([*(o.message for o in outcomes.values()), flagged])
    assert "TAKEN" not in shown.replace("TAKEN(", "").replace("def TAKEN", ""), shown
    assert not any(secret in shown + messages for secret in HIDDEN), messages
    assert all(c.isprintable() or c in "\n\t" for c in messages), ascii(messages)
    messages.encode()
    assert len(messages) < 200_000


def assert_nothing_runs() -> None:
    give_up = time.monotonic() + 5
    while of_sandboxes() and time.monotonic() < give_up:
        time.sleep(0.1)
    assert of_sandboxes() == []
