"""`hub run`: the hub of a class in the foreground, and nothing of it left when it has stopped.

Whatever the hub starts and leaves behind becomes a child of this process, which ends it at the end. A hub that dies by
itself is started again a few times: servers of students go on meanwhile. Under systemd, TimeoutStopSec=90 is enough.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path

import psutil

from autograder.course import REPO, UserError
from autograder.hub.api import Hub
from autograder.hub.layout import Layout
from autograder.hub.members import catch_up
from autograder.hub.shield import KEEPER

START_S, STOP_S, END_S = 120.0, 80.0, 10.0
MOST_RESTARTS = 5
TOO_SLOW = "Cannot connect to"  # JupyterHub 5 gives the grading service ten seconds, then ends by itself
PR_SET_CHILD_SUBREAPER = 36


class Runner:
    """Starts, watches and stops one hub.

    Example:
        with Runner(Layout.of(Path("/srv/llm"))) as runner:      # the hub answers from here on
            runner.watch()                                       # until a signal comes
    """

    def __init__(self, layout: Layout, say: Callable[[str], None] = print) -> None:
        self.layout, self.say = layout, say
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = False

    def __enter__(self) -> Runner:
        if Hub(self.layout).runs():
            raise UserError(f"A hub answers already on port {self.layout.spec.address.hub}: stop it first.")
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        """Start the hub and wait until all of it answers; once more where the grading service came too late for it."""
        for again in (True, True, False):
            self._launch()
            if self._came_up():
                break
            said = last_words(self.layout.log)
            if not (again and self.process.poll() is not None and TOO_SLOW in last_words(self.layout.log, 20)):
                raise UserError(f"The hub did not start; its log {self.layout.log} ends with: {said}")
            self.say("The hub ended because the grading service was slow to start; it is started again.")
            end_children(but=is_server)
        try:
            for mended in catch_up(self.layout):
                self.say(mended)
        except UserError as error:  # the class goes on; the doctor tells of the same
            self.say(f"The hub could not be brought in step with people.csv: {error} See `hub doctor`.")

    def _launch(self) -> None:
        with open(self.layout.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.layout.config)], cwd=self.layout.hub,
                env=_environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _came_up(self) -> bool:
        until, hub = time.monotonic() + START_S, Hub(self.layout)
        while not (hub.runs() and self._grader_answers(hub) and self._proxy_leads_to_it(hub)):
            if self.process.poll() is not None or time.monotonic() > until:
                return False
            self._reap()  # a server that ended meanwhile must not look alive to a hub that comes back
            time.sleep(0.3)
        return True

    def _grader_answers(self, hub: Hub) -> bool:
        """Whether the grading service answers; it sends whoever comes without a login to the hub."""
        address = f"http://127.0.0.1:{self.layout.spec.address.grader}/services/{self.layout.spec.course}/api"
        try:
            with hub.opener.open(address, timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def _proxy_leads_to_it(self, hub: Hub) -> bool:
        """Whether the public address leads to the hub: a proxy that has just started knows no way to the hub."""
        try:
            with hub.opener.open(f"{self.layout.spec.address.url}hub/health", timeout=5):
                return True
        except OSError:  # an HTTPError is one
            return False

    def watch(self) -> int:
        """Wait for SIGTERM or SIGINT, or for a hub that cannot be kept up; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        restarts = 0
        while not self.stopping:
            if self.process.poll() is not None:
                restarts += 1
                if restarts > MOST_RESTARTS:
                    self.say(f"The hub ended {restarts} times; its log is {self.layout.log}.")
                    return 1
                self.say(f"The hub ended by itself (code {self.process.returncode}) and is started again.")
                end_children(but=is_server)
                self._start()
            self._reap()
            time.sleep(0.3)
        return 0

    def _reap(self) -> None:
        """Take note of the end of processes that others left to us; the hub's own end is Popen's to note."""
        for child in psutil.Process().children():
            if child.pid != self.process.pid and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)

    def _asked(self, *_: object) -> None:
        self.stopping = True

    def stop(self) -> None:
        """Stop the hub, wait for it, and end whatever it left."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_S)
        end_children()
        self.process = None


def is_server(process: psutil.Process) -> bool:
    """Whether a process is the keeper of a person's server: the proxy and the hub's services are not."""
    try:
        return KEEPER[-3] in process.cmdline()[:4]
    except psutil.Error:
        return False


def end_children(but: Callable[[psutil.Process], bool] | None = None) -> None:
    """End all processes below this one, less those that `but` names with what is below them: ask, wait, force."""
    for number, patience in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        tops = [child for child in psutil.Process().children() if not (but and but(child))]
        left = [*tops, *(one for top in tops for one in _below(top))]
        for process in left:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(left, timeout=patience)
    while True:  # those that were left to us by others
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return
        except ChildProcessError:
            return


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def last_words(log: Path, lines: int = 6) -> str:
    """The end of a log."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return " / ".join(line.strip() for line in text.splitlines()[-lines:]) or "nothing"


def _environment() -> dict[str, str]:
    """What the hub starts with: none of the caller's Jupyter settings."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    programs = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return kept | {"PATH": programs, "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(REPO)}
