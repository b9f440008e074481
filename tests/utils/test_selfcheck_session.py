"""Single cells in a kernel: limits, output, and what is left afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from utils.selfcheck import session as session_module
from utils.selfcheck.outputs import FLOOD_CHARS, OutputLog
from utils.selfcheck.session import MARKER, KernelSession


@pytest.fixture
def session(tmp_path: Path) -> Iterator[KernelSession]:
    with KernelSession(tmp_path) as one:
        yield one


def text_of(run) -> str:
    return "".join(output.get("text", "") for output in run.outputs if output["output_type"] == "stream")


def test_a_cell_runs_in_its_folder_and_later_cells_see_its_names(
    session: KernelSession, tmp_path: Path
) -> None:
    assert session.run("import os\nwhere = os.getcwd()", 60).status == "ok"
    run = session.run("print(where)\n'value'", 60)
    assert text_of(run).strip() == str(tmp_path)
    assert run.outputs[-1]["data"]["text/plain"] == "'value'"


def test_an_exception_has_its_name_and_the_line_of_the_cell(session: KernelSession) -> None:
    run = session.run("def f():\n    return {}['key']\n\nf()", 60)
    assert (run.status, run.ename, run.line) == ("error", "KeyError", 2)
    assert session.run("1", 60).status == "ok"


def test_a_loop_is_interrupted_at_its_line_and_the_kernel_goes_on(session: KernelSession) -> None:
    run = session.run("kept = 7\nx = 0\nwhile True:\n    x += 1", 1)
    assert run.status == "stopped"
    assert run.line in (3, 4)
    assert 1 <= run.seconds < 40
    assert text_of(session.run("print(kept)", 60)) == "7\n"


def test_a_cell_that_swallows_the_interrupt_is_killed(session: KernelSession, monkeypatch) -> None:
    monkeypatch.setattr("utils.selfcheck.cell.INTERRUPT_S", 0.5)
    code = (
        "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except BaseException:\n        pass"
    )
    run = session.run(code, 1)
    assert run.status == "stopped"
    assert not session.alive
    assert session.run("1", 5).status == "died"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import os\nos._exit(3)", 3),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", -9),
        ("exit()", 0),
    ],
)
def test_the_end_of_the_process_is_noticed_at_once(session: KernelSession, code: str, exit_code: int) -> None:
    run = session.run(code, 120)
    assert (run.status, run.exit_code) == ("died", exit_code)
    assert run.seconds < 60


def test_endless_printing_is_cut_while_it_runs(session: KernelSession) -> None:
    before = psutil.Process().memory_info().rss
    run = session.run("print('first')\nwhile True:\n    print('x' * 1000)", 200)
    assert run.status == "flooded"
    assert run.seconds < 150
    text = text_of(run)
    assert text.startswith("first\n")
    assert "characters left out" in text
    assert len(text) < 50_000
    assert psutil.Process().memory_info().rss - before < 100 * 2**20
    assert session.run("1", 60).status == "ok"


def test_long_output_keeps_head_and_tail() -> None:
    log = OutputLog()
    for i in range(10_000):
        log.stream("stdout", f"line {i}\n")
    text = "".join(output["text"] for output in log.outputs())
    assert text.startswith("line 0\n")
    assert text.endswith("line 9999\n")
    assert not log.flooded
    log.stream("stdout", "y" * FLOOD_CHARS)
    assert log.flooded


def test_input_is_an_error_not_a_wait(session: KernelSession) -> None:
    run = session.run("name = input('who? ')", 60)
    assert (run.status, run.ename) == ("error", "StdinNotImplementedError")


def left_over(marker: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if session_module._carries(process, marker)]


def test_nothing_outlives_the_session(tmp_path: Path) -> None:
    code = """
import os, subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "601"], {})
    os._exit(0)
"""
    with KernelSession(tmp_path) as session:
        marker, folder = session._marker, session._dir
        assert session.run(code, 60).status == "ok"
        keeper = psutil.Process(session._keeper.pid)
        sleepers, until = [], time.monotonic() + 60
        while len(sleepers) < 2 and time.monotonic() < until:  # the grandchild takes its time
            sleepers = [child for child in keeper.children(recursive=True) if "sleep" in child.name()]
        assert len(sleepers) == 2
    assert session.ended >= 2
    assert not any(sleeper.is_running() for sleeper in sleepers)
    assert left_over(marker) == []
    assert not folder.exists()


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    """The keeper notices that its parent is gone, and ends the kernel."""
    import signal
    import subprocess
    import sys

    code = (
        "import sys, time\nfrom pathlib import Path\nfrom utils.selfcheck.session import KernelSession\n"
        f"s = KernelSession(Path({str(tmp_path)!r}))\n"
        "print(s._keeper.pid, s._kernel_pid, s._dir, flush=True)\n"
        "s.run('import time; time.sleep(600)', 600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    keeper, kernel, folder = parent.stdout.readline().split()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and any(psutil.pid_exists(int(pid)) for pid in (keeper, kernel)):
        time.sleep(0.05)
    assert not psutil.pid_exists(int(keeper))
    assert not psutil.pid_exists(int(kernel))
    assert not Path(folder).exists()


def test_the_kernels_environment_is_the_one_given(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with KernelSession(tmp_path, env) as session:
        run = session.run("import os\nprint(sorted(set(os.environ) & {'HOME', 'COURSE_DATA'}))", 60)
    assert text_of(run) == "['HOME']\n"
    assert MARKER not in os.environ
