"""Pods of the stand-in cluster at work: what student code sees there, how it ends, and a class that is graded in them.

The stand-in (standin_kubectl.py) runs each pod in bubblewrap, with the mounts, user and environment of its manifest.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from autograder.course import REPO, Course
from autograder.grade import grade
from autograder.release import release
from autograder.sandbox import Forged, Limits, SandboxRefused, open_sandbox, why_not
from tests.deploy.conftest import inits
from tests.sandbox.conftest import ask, printed, see

TOY = "lab90_toy"
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why"),
]


# -- one pod, from inside and out --------------------------------------------------------------------------------------
def test_a_pod_answers_sees_nothing_and_ends_whole(cluster, tmp_path: Path) -> None:
    state = cluster()
    files = tmp_path / "submission"
    files.mkdir()
    (files / "data.txt").write_text("7")
    with open_sandbox("pod", files, Limits(launch_s=60), ["utils/engine"]) as box:
        channel = box.start()
        assert "no network, no token, read-only" in box.describe()
        assert see(channel, "x = 5", "(x + 1, open('data.txt').read())") == (6, "7")
        assert ask(channel, lambda: x, ranks=2, timeout=60)["values"] == [5, 5]  # noqa: F821
        _looks_around(channel)
        _cannot_reach_the_carrier(channel)
        shown = channel.cell(7, "for i in range(100):\n    print(f'p{i}')\n    display(i)", 60)
        texts = "".join(o.get("text") or o["data"]["text/plain"] + "\n" for o in shown.outputs)
        assert texts.split() == [word for i in range(100) for word in (f"p{i}", str(i))]
        before = box.usage().loopback_bytes
        assert see(channel, SENDS, "sent") == 1 << 20
        assert (1 << 20) < box.usage().loopback_bytes - before < 3 << 20
        assert channel.cell(8, "while True: pass", 0.5).status == "stopped"
        assert channel.cell(9, "while True: print('y' * 1000)", 60).status == "flooded"
        assert see(channel, "", "x") == 5
        run = channel.cell(10, "print('last words'); import os; os.kill(os.getpid(), 9)", 20)
        assert (run.status, run.exit_code) == ("died", -9) and "last words" in printed(run)
    log = (state / "log").read_text().splitlines()
    assert log[-1].startswith(f"delete job {box.name} ") and "--cascade=foreground" in log[-1]


SENDS = """
import socket
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname()); other, _ = server.accept()
sent = 0
while sent < 1 << 20:
    one.sendall(bytes(1 << 16)); sent += len(other.recv(1 << 16, socket.MSG_WAITALL))
"""


def _looks_around(channel: Any) -> None:
    code = f"""
import importlib.util, os, socket, subprocess
def tried(fn, *args):
    try: return fn(*args)
    except OSError as error: return type(error).__name__
facts = dict(
    user=os.getuid() > 9_999, repository=os.path.exists({str(REPO / "solutions")!r}),
    hidden=importlib.util.find_spec("utils.engine") is not None,
    shown=importlib.util.find_spec("utils.cost") is not None,
    network=tried(socket.create_connection, ("1.1.1.1", 53), 1), names=sorted(os.environ),
    write=tried(open, "/usr/x", "w"), token=os.path.exists("/var/run/secrets"),
    privileges=[l for l in open("/proc/self/status") if l.startswith(("CapEff", "CapPrm", "NoNewPrivs"))],
)"""
    facts = see(channel, code, "facts")
    assert facts["user"] and facts["shown"] and not facts["repository"] and not facts["hidden"] and not facts["token"]
    assert facts["network"] == "OSError" and facts["write"] == "OSError"
    assert not [n for n in facts["names"] if "TOKEN" in n or "KUBE" in n or "COURSE" in n or n == "PORTER"]
    assert [line.split()[1] for line in facts["privileges"]] == ["0" * 16, "0" * 16, "1"]


def _cannot_reach_the_carrier(channel: Any) -> None:
    """Student code has the carrier's user id: it may not write into its stream, nor read its memory."""
    code = """
import os
found = {}
for pid in sorted((n for n in os.listdir("/proc") if n.isdigit()), key=int):
    line = open(f"/proc/{pid}/cmdline").read().split("\\0")
    if "serve" in line:
        for name in ("fd/1", "fd/0", "mem"):
            try: found[name] = os.write(os.open(f"/proc/{pid}/{name}", os.O_WRONLY), b"X")
            except OSError as error: found[name] = type(error).__name__
os.write(1, b"X\\x02\\x00\\x00\\x00{}")
"""
    assert see(channel, code, "found") == dict.fromkeys(("fd/1", "fd/0", "mem"), "PermissionError")
    assert see(channel, "", "'still here'") == "still here"


@pytest.mark.parametrize(("word", "number"), [("serve", signal.SIGKILL), ("hold", signal.SIGTERM)])
def test_a_student_who_ends_the_carrier_ends_their_own_process(cluster, word: str, number: int) -> None:
    """No way out of a mark: what the student's code ends in its pod counts as its end, not as the cluster's."""
    cluster()
    code = f"""
import os, time
for pid in (n for n in os.listdir("/proc") if n.isdigit()):
    if {word!r} in open(f"/proc/{{pid}}/cmdline").read().split("\\0"):
        os.kill(int(pid), {int(number)})
time.sleep(20)
"""
    with open_sandbox("pod") as box:
        run = box.start().cell(1, code, 30)
        assert (run.status, run.exit_code, box.ended_because) == ("died", -9, "")


def test_too_many_processes_end_the_pod(cluster) -> None:
    cluster()
    with open_sandbox("pod", limits=Limits(processes=25)) as box:
        code = "import subprocess, time\nkept = [subprocess.Popen(['sleep', '99']) for _ in range(40)]\ntime.sleep(20)"
        run = box.start().cell(1, code, 30)
        assert (run.status, box.ended_because) == ("died", "it started more than 25 processes")


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        ({"reason": "Evicted", "message": "The node was low on resource: memory."},
         r"the cluster took pod answers-\w+-x1y2z away \(Evicted: The node was low on resource: memory\.\): grade it"),
        ({"terminated": "OOMKilled"}, "it used more than 4.0 GiB of memory"),
    ],
)  # fmt: skip
def test_a_pod_that_is_ended_from_outside(cluster, end: dict[str, str], wanted: str) -> None:
    """What the cluster did costs nobody marks; a limit that the pod went past is the student's."""
    state = cluster()
    with open_sandbox("pod") as box:
        channel = box.start()
        (state / f"{box.name}.end").write_text(json.dumps(end))
        run = 'import os; os.write(1, b"x")\nimport time; time.sleep(0.1)'
        assert channel.cell(1, run, 20).status == "ok"
        os.kill(int((state / f"{box.name}.init").read_text()), signal.SIGKILL)
        if "away" in wanted:
            with pytest.raises(SandboxRefused, match=wanted):
                channel.cell(2, "1", 20)
        else:
            assert (channel.cell(2, "1", 20).status, box.ended_because) == ("died", wanted)


def test_garbage_in_the_middle_is_flagged_as_forged(cluster, monkeypatch) -> None:
    cluster()
    with open_sandbox("pod") as box:
        channel = box.start()
        box.relay.inbox += b"\x00\x01garbage"  # as if it had come from the pod
        with pytest.raises(Forged, match="the pod with the student's code sent bytes that are no frame of ours"):
            channel.cell(1, "print(1)", 20)


def test_a_grader_that_is_killed_leaves_no_pod(cluster) -> None:
    state = cluster()
    code = (
        "from autograder.sandbox import open_sandbox\nimport time\nbox = open_sandbox('pod')\nbox.start()\n"
        "print('started', flush=True)\ntime.sleep(600)"
    )
    grader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPO)
    assert grader.stdout is not None and grader.stdout.readline() == "started\n"
    assert len(inits(state)) == 1
    grader.kill()
    grader.wait()
    grader.stdout.close()
    until = time.monotonic() + 30
    while inits(state) and time.monotonic() < until:
        time.sleep(0.1)
    assert inits(state) == []
    for path in (*state.glob("*.pod"), *state.glob("*.job")):
        path.unlink()  # the cluster's ttlSecondsAfterFinished


# -- a class -----------------------------------------------------------------------------------------------------------
WRONG = "def pass_on(x):\n    return x\n"
ENDS = "import os\nos._exit(3)\n"
READS = "def answer_steps(p):\n    return int(open('data.txt').read())\n"


@pytest.mark.timeout(900)
def test_a_class_gets_the_same_marks_in_pods_as_in_bubblewrap(cluster, tmp_path: Path) -> None:
    """Points, status, message, flags: of a right one, of a wrong one that reads a file, and of one that ends itself."""
    cluster()
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", tmp_path / "solutions")
    course = Course(tmp_path / "solutions", tmp_path / "labs", tmp_path / "bubblewrap")
    release(course, TOY)
    folder = tmp_path / "handed_in"
    _hand_in(course, folder)
    told = {}
    for kind in ("bubblewrap", "pod"):
        results = grade(replace(course, data=tmp_path / kind, sandbox=kind), TOY, folder, jobs=1)
        told[kind] = {
            r.student: (r.status, r.score, r.flags, [(t.id, t.points, t.status, t.message) for t in r.tests])
            for r in results
        }
        assert {r.student: r.isolation for r in results if not r.isolation.startswith(kind)} == {}, told[kind]
    assert told["pod"] == told["bubblewrap"]
    scores = {student: result[1] for student, result in told["pod"].items()}
    assert scores == {"right": 20, "wrong": 15, "ends": 10}


def _hand_in(course: Course, folder: Path) -> None:
    released = nbformat.read(course.releases / TOY / f"{TOY}.ipynb", as_version=4)
    reference = {c.id: c.source for c in nbformat.read(course.solutions / TOY / f"{TOY}.ipynb", as_version=4).cells}
    changed = {"right": {}, "wrong": {"pass_on": WRONG, "answer_steps": READS}, "ends": {"answer_steps": ENDS}}
    for student in changed:
        notebook = copy.deepcopy(released)
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                cell.source = changed[student].get(cell.id, reference[cell.id])
        place = folder / student / TOY
        place.mkdir(parents=True)
        nbformat.write(notebook, place / f"{TOY}.ipynb")
        if student == "wrong":
            (place / "data.txt").write_text("6")
