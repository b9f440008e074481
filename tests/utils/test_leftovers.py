"""Nothing is left behind, whichever way a launch, a rank or the kernel ends: no process, no file, no shared memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from leftovers import Kernel, kernel

pytestmark = pytest.mark.heavy

STUCK = """
def step():
    print("in step", flush=True)
    if dist.get_rank() == 0:
        time.sleep(1000)
    dist.barrier()
"""

AGAIN = """
try:
    launch(step, ranks=4)
except LaunchError as error:
    print(error)
print("again", launch(dist.get_rank, ranks=2).values)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty temporary folder for the kernel."""
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def ended(one: Kernel) -> str:
    text = one.finish()
    one.assert_nothing_left()
    return text


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("success", "print(launch(dist.get_rank, ranks=4).values)", "[0, 1, 2, 3]"),
        ("error", "def step():\n    raise ValueError('no')\nlaunch(step, ranks=4)", "ValueError: no"),
        ("timeout", STUCK + "launch(step, ranks=4, timeout=1)", "within 1 s"),
        (
            "rank_killed",
            "launch(lambda: os.kill(os.getpid(), 9) if dist.get_rank() == 1 else dist.barrier(), ranks=4)",
            "SIGKILL",
        ),
        (
            "os_exit",
            "launch(lambda: os._exit(3) if dist.get_rank() == 1 else dist.barrier(), ranks=4)",
            "exit code 3",
        ),
        (
            "gloo_abort",
            "launch(lambda: dist.all_reduce(torch.ones(3 + 2 * dist.get_rank())), ranks=2)",
            "aborted in all_reduce",
        ),
        (
            "deadlock",
            "launch(lambda: dist.barrier() if dist.get_rank() else None, ranks=3)",
            "never reached barrier",
        ),
    ],
)
def test_a_run_that_ends(folder: Path, name: str, code: str, says: str) -> None:
    with kernel(folder, code) as one:
        assert says in ended(one), name


def test_while_the_kernel_lives_only_standby_ranks_remain(folder: Path) -> None:
    code = """
import subprocess
def step():
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
launch(step, ranks=4, timeout=10)
print("ready", flush=True)
time.sleep(1000)
"""
    with kernel(folder, code) as one:
        one.wait_for("ready")
        ranks = one.standing_by(4)
        assert len(ranks) == 4 and not any("sleep" in p.name() for p in ranks), ranks
        one.process.kill()
        ended(one)


def test_keyboard_interrupt(folder: Path) -> None:
    code = STUCK + "try:\n    launch(step, ranks=4)\nexcept KeyboardInterrupt as e:\n    print('INTERRUPTED', e)"
    with kernel(folder, code) as one:
        one.wait_for("[rank")
        time.sleep(0.5)
        one.process.send_signal(signal.SIGINT)
        text = ended(one)
        assert "INTERRUPTED interrupted. Where the ranks were:" in text and "rank 0 is at line" in text
        assert "ranks 1, 2 and 3 wait in barrier #1" in text


def test_kernel_killed_while_ranks_run(folder: Path) -> None:
    with kernel(folder, STUCK + "launch(step, ranks=4)") as one:
        one.wait_for("[rank")
        one.process.kill()
        ended(one)


def test_kernel_killed_while_starting(folder: Path) -> None:
    with kernel(
        folder, "from utils.ranks.api import warm_up\nwarm_up()\nprint('up', flush=True)\ntime.sleep(1000)"
    ) as one:
        one.wait_for("up")
        one.process.kill()
        ended(one)


def test_server_killed(folder: Path) -> None:
    code = (
        STUCK
        + "from utils.ranks.client import client\nclient().wait_ready()\n"
        + "print('server', client().process.pid, flush=True)\n"
        + AGAIN
    )
    with kernel(folder, code) as one:
        assert one.process.stdout is not None
        pid = int(next(line for line in one.process.stdout if line.startswith("server")).split()[1])
        one.wait_for("[rank")
        os.kill(pid, signal.SIGKILL)
        text = ended(one)
        assert "the rank server was killed" in text and "again [0, 1]" in text


def test_many_launches_leak_no_descriptor(folder: Path) -> None:
    code = """
launch(dist.get_rank, ranks=2)
before = len(os.listdir("/proc/self/fd"))
for _ in range(10):
    launch(dist.get_rank, ranks=2)
    try:
        launch(lambda: 1 / 0, ranks=2)
    except LaunchError:
        pass
print("fds", len(os.listdir("/proc/self/fd")) - before)
"""
    with kernel(folder, code) as one:
        assert "fds 0" in ended(one)
