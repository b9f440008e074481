"""Folders for the time of a task: gone after it, and after whoever was killed in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autograder.course import REPO
from autograder.scratch import _where, scratch, sweep
from autograder.serving import Server

HOLD = """
import sys, time
from pathlib import Path
from autograder.scratch import scratch
with scratch("held", Path(sys.argv[1])) as folder:
    (Path(folder) / "a").write_text("b")
    print(folder, flush=True)
    time.sleep(60)
"""


def hold(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_gone_after_its_task_and_after_a_kill(tmp_path: Path) -> None:
    with scratch("held", tmp_path) as folder:
        assert Path(folder).parent == tmp_path and Path(folder).name.startswith(f"held-{os.getpid()}-")
    living, its = hold(tmp_path)
    killed, left = hold(tmp_path)
    killed.kill()
    killed.wait()
    assert left.is_dir()
    others = [tmp_path / "held-x-1", tmp_path / "held-2", tmp_path / f"other-{killed.pid}-1"]
    for other in others:
        other.mkdir()
    with scratch("held", tmp_path):
        assert not left.exists() and its.is_dir() and all(other.is_dir() for other in others)
    living.terminate()
    living.wait()


def test_what_runs_on_another_machine_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    """A shared folder: the number of its process means nothing here."""
    killed, left = hold(tmp_path)
    killed.kill()
    killed.wait()
    kind, pid, where, end = left.name.split("-", 3)
    elsewhere = left.rename(tmp_path / f"{kind}-{pid}-{int(where, 16) ^ 1:08x}-{end}")
    sweep("held", tmp_path)
    assert elsewhere.is_dir()
    old = time.time() - 3 * 86400
    os.utime(elsewhere, (old, old))
    sweep("held", tmp_path)
    assert not elsewhere.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / f"held-999999999-{_where()}-a").symlink_to(kept)
    sweep("held", tmp_path)
    assert kept.is_dir()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")
def test_a_worker_of_a_cluster_that_is_killed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A serving process is killed in the middle of a submission that came with a file."""
    import threading

    from autograder import worker
    from autograder.sandbox import why_not
    from autograder.serving import plain_task

    if reason := why_not("bubblewrap"):
        pytest.skip(reason)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "data.txt").write_text("x")
    cell = {"cell_type": "code", "source": "import time\ntime.sleep(60)", "metadata": {}}
    server, said = Server(), []
    task = json.dumps(plain_task([cell], worker.Terms(), tmp_path / "files"))

    def ask() -> None:
        try:
            server.ask(task)
        except RuntimeError as error:
            said.append(str(error))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    asking = threading.Thread(target=ask)
    asking.start()
    until = time.monotonic() + 120
    while not list((tmp_path / "tmp").glob("handed-in-*/data.txt")) and time.monotonic() < until:
        time.sleep(0.1)
    assert list((tmp_path / "tmp").glob("handed-in-*/data.txt"))
    os.kill(server.process.pid, signal.SIGKILL)
    asking.join(60)
    assert said == ["the process that runs submissions ended in the middle of one"]
    assert os.listdir(tmp_path / "tmp") == []
