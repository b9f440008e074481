"""Holds one kernel and everything it starts, so that all of it can be ended.

Run as a script (`python keeper.py FOLDERS COMMAND...`), it starts COMMAND in a session of its own and speaks
with its parent over two pipes: on stdout it writes `pid N`, then `exit CODE` when the command ends, then
`ended N` when it has killed what was left and removed FOLDERS (paths, joined as in PATH); an end of file on
stdin tells it to do so, so that this happens even when the parent is killed. On Linux it is a subreaper:
a process that the student's code detached (double fork, setsid) becomes its child, and is found and killed.
It imports nothing from the course, because importing `utils` starts processes of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import psutil

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 10.0


def become_subreaper() -> None:
    """Adopt orphaned descendants. Only Linux has this; elsewhere the parent looks for a mark they inherit."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pid: int) -> int | None:
    """Collect every child that ended; the exit code of `pid` if among them (negative: killed by a signal)."""
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if ended == 0:
            return code
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)


def end_all(pid: int) -> int:
    """Kill every descendant until none is left; how many there were besides the kernel `pid`."""
    seen: set[int] = set()
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        family = psutil.Process().children(recursive=True)
        if not family:
            break
        # Stop first: a process that forks faster than it is killed would otherwise always leave a child.
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(sig)
        seen.update(process.pid for process in family)
        time.sleep(0.005)
        reap(pid)
    return len(seen - {pid})


def say(line: str) -> None:
    with contextlib.suppress(OSError):  # the parent may be gone; what it started still has to end
        os.write(1, (line + "\n").encode())


def keep(folders: list[str], command: list[str]) -> None:
    """Start `command`, report its end; end all and remove `folders` when the parent closes the pipe."""
    become_subreaper()
    wake_r, wake_w = os.pipe()
    for fd in (wake_r, wake_w):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN: an ignored signal would stay ignored in the kernel.
    for sig in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(sig, lambda *_: None)
    kernel = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    say(f"pid {kernel.pid}")
    while True:
        ready, _, _ = select.select([0, wake_r], [], [])
        if wake_r in ready:
            os.read(wake_r, 512)
            code = reap(kernel.pid)
            if code is not None:
                say(f"exit {code}")
        if 0 in ready:
            os.read(0, 64)
            break
    ended = end_all(kernel.pid)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"ended {ended}")


if __name__ == "__main__":
    keep(sys.argv[1].split(os.pathsep), sys.argv[2:])
