"""Limits inside a sandbox: what passes one costs only itself, is told in words, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from autograder.sandbox import Ended
from tests.sandbox.conftest import ask, printed, see

MIB = 1 << 20


def test_time_of_a_cell(opened) -> None:
    _, channel = opened()
    run = channel.cell(1, "x = 1\nwhile True:\n    x += 1", 0.5)
    assert (run.status, run.ename, run.line in (2, 3)) == ("stopped", "KeyboardInterrupt", True)
    assert see(channel, "", "x > 1") is True


def test_cell_that_ignores_interrupts_is_killed(opened, monkeypatch) -> None:
    from autograder.sandbox import channel as module

    monkeypatch.setattr(module, "INTERRUPT_S", 0.5)
    _, channel = opened()
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    run = channel.cell(1, code, 0.5)
    assert (run.status, run.exit_code, channel.alive) == ("stopped", -signal.SIGKILL, False)
    assert "did not react to an interrupt" in run.outputs[-1]["evalue"]
    assert channel.cell(2, "1", 5).status == "died"


def test_hang_in_c_is_killed(opened, monkeypatch) -> None:
    from autograder.sandbox import channel as module

    monkeypatch.setattr(module, "INTERRUPT_S", 0.3)
    _, channel = opened()
    run = channel.cell(1, "sum(range(10**15))", 0.5)  # looks at no signal until it is done
    assert (run.status, channel.alive) == ("stopped", False)


def test_killing_everything_in_sight(opened) -> None:
    """Where what holds the sandbox together is another user's, only the student's own processes die."""
    _, channel = opened()
    channel.cell(1, "import os; os.kill(-1, 9)", 20)
    time.sleep(0.5)
    run = channel.cell(2, "from utils import launch\nlaunch(lambda: 1, ranks=2)", 30)
    assert (run.status, channel.alive) in (("ok", True), ("died", False))


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("import os; os._exit(3)", 3), ("exit()", 0), ("quit()", 0), ("import os; os.kill(os.getpid(), 9)", -9),
     ("import ctypes; ctypes.string_at(0)", -11), ],
)  # fmt: skip
def test_cell_that_ends_the_process(opened, code, exit_code) -> None:
    _, channel = opened()
    run = channel.cell(1, f"print('before', flush=True)\n{code}", 20)
    assert (run.status, run.exit_code, channel.alive) == ("died", exit_code, False)
    assert "before" in printed(run)


def test_endless_output_is_cut(opened) -> None:
    _, channel = opened()
    run = channel.cell(1, "print('first')\nwhile True:\n    print('x' * 1000)", 60)
    assert run.status == "flooded" and channel.alive
    assert printed(run).startswith("first") and len(printed(run)) < 60_000
    run = channel.cell(2, "while True:\n    display(1)", 60)
    assert run.status == "flooded" and len(run.outputs) < 300


def test_output_of_programs_and_of_c_is_kept_and_bytes_are_no_trouble(opened) -> None:
    _, channel = opened()
    code = (
        "!echo from a program\nimport os\n_ = os.system('echo from a shell >&2')\n_ = os.write(1, b'\\xff\\xfe raw\\n')"
    )
    text = printed(channel.cell(1, code, 20))
    assert "from a program" in text and "from a shell" in text and "raw" in text


def test_memory_of_one_process_raises_there(opened) -> None:
    _, channel = opened(address_bytes=3 << 30)
    assert channel.cell(1, "big = bytearray(4 << 30)", 20).ename == "MemoryError"
    assert channel.cell(2, "import torch\nbig = torch.ones(1 << 30)", 20).ename == "RuntimeError"
    assert see(channel, "", "1 + 1") == 2


def test_memory_of_all_processes_ends_them(opened) -> None:
    box, channel = opened(memory_bytes=700 * MIB)
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20) * 250)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
    run = channel.cell(1, code, 30)
    assert (run.status, run.evalue) == ("died", "it used more than 700 MiB of memory")
    assert run.seconds < 20 and box.usage().peak_memory_bytes > 700 * MIB


def test_memory_in_files_counts(opened) -> None:
    box, channel = opened(memory_bytes=500 * MIB, shm_bytes=400 * MIB)
    code = "import time\nopen('/dev/shm/x', 'wb').write(b'x' * (380 << 20))\ntime.sleep(20)"
    run = channel.cell(1, code, 30)
    assert (run.status, box.ended_because) == ("died", "it used more than 500 MiB of memory")


def test_memory_in_files_without_a_name_counts(opened) -> None:
    box, channel = opened(memory_bytes=500 * MIB)
    code = """
import os, time
for name in "ab":
    fd = os.memfd_create(name)
    for _ in range(200):
        os.write(fd, b"x" * (1 << 20))
time.sleep(20)
"""
    run = channel.cell(1, code, 30)
    assert (run.status, box.ended_because) == ("died", "it used more than 500 MiB of memory")


def test_shared_pages_are_counted_once(opened) -> None:
    box, channel = opened(memory_bytes=1500 * MIB)
    assert channel.cell(1, "import time; time.sleep(0.5)", 30).status == "ok"
    loaded = box.usage().peak_memory_bytes  # more where torch is built for CUDA
    code = """
import os, time
held = bytearray(os.urandom(1 << 20) * 300)
children = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        time.sleep(1)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
    assert channel.cell(2, code, 30).status == "ok"
    assert 290 * MIB < box.usage().peak_memory_bytes - loaded < 900 * MIB  # seven times 300 where each copy counts


def test_fork_bomb(opened) -> None:
    box, channel = opened(processes=60, tasks=200)
    code = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.1)
"""
    run = channel.cell(1, code, 30)
    assert (run.status, run.evalue) == ("died", "it started more than 60 processes")
    box.close()


def test_tasks_are_limited_by_the_system(opened) -> None:
    _, channel = opened(tasks=40, processes=1000)
    code = """
import threading, time
started = 0
try:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
"""
    assert 10 < see(channel, code, "started") < 40


def test_disk(opened) -> None:
    _, channel = opened(disk_bytes=30 * MIB, file_bytes=20 * MIB)
    code = """
def fill(folder, size):
    try:
        for i in range(20):
            with open(f"{folder}/{i}", "wb") as file:
                file.write(b"x" * size)
    except OSError as error:
        return error.strerror
"""
    assert see(channel, code, f"fill('.', {25 * MIB})") == "File too large"
    assert see(channel, code, f"fill('.', {8 * MIB})") == "No space left on device"
    assert see(channel, code, f"fill('/tmp', {8 * MIB})") == "No space left on device"


def test_open_files(opened) -> None:
    _, channel = opened(open_files=200)
    code = """
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError as error:
    said = error.strerror
count = len(files)
files.clear()
"""
    said, count = see(channel, code, "(said, count)")
    assert said == "Too many open files" and count < 200


def test_submission_larger_than_the_disk(opened, tmp_path) -> None:
    folder = tmp_path / "submission"
    folder.mkdir()
    with open(folder / "huge.bin", "wb") as file:
        file.truncate(40 * MIB)
    with pytest.raises(Ended, match="No space left"):
        opened(folder=folder, disk_bytes=20 * MIB)


def test_no_core_files(opened) -> None:
    _, channel = opened()
    assert see(channel, "import resource", "resource.getrlimit(resource.RLIMIT_CORE)") == (0, 0)


# -- nothing left ------------------------------------------------------------------------------------------------------
def inner_pids(box) -> list[int]:
    """The pids, as seen here, of all that runs in the sandbox's pid namespace."""
    wanted = os.readlink(f"/proc/{box.init_pid}/ns/pid")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/ns/pid") == wanted:
                    found.append(int(name))
            except OSError:
                continue
    return found


DETACHED = """
import subprocess, os
for _ in range(3):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: pass
    os._exit(0)
"""


def test_nothing_is_left_after_closing(opened) -> None:
    mounts, temporary = Path("/proc/self/mountinfo").read_text(), set(os.listdir(tempfile.gettempdir()))
    box, channel = opened()
    see(channel, DETACHED, "1")
    ask(channel, lambda: None, ranks=2)
    pids = inner_pids(box)
    assert len(pids) >= 8
    box.close()
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    assert left == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert set(os.listdir(tempfile.gettempdir())) - temporary == set()


def test_nothing_is_left_when_the_grader_is_killed() -> None:
    code = f"""
import os, time
from autograder.sandbox import open_sandbox
box = open_sandbox("bubblewrap")
channel = box.start()
assert channel.cell(1, {DETACHED!r}, 20).status == "ok"
print(box.init_pid, flush=True)
time.sleep(600)
"""
    grader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert grader.stdout is not None
    init = int(grader.stdout.readline())
    wanted = os.readlink(f"/proc/{init}/ns/pid")
    warm = [p.pid for p in psutil.Process(grader.pid).children(recursive=True)]
    assert len(warm) >= 3
    grader.kill()
    grader.wait()
    grader.stdout.close()
    until = time.monotonic() + 20
    while time.monotonic() < until and (left := [p for p in warm if psutil.pid_exists(p)] + in_namespace(wanted)):
        time.sleep(0.05)
    assert left == []


def in_namespace(wanted: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.readlink(f"/proc/{process.pid}/ns/pid") == wanted:
                found.append(process.pid)
        except OSError:
            continue
    return found
