"""One fresh kernel, run from outside: cells with time limit and bounded output, and nothing left afterwards.

The kernel speaks over Unix sockets in a private folder (no ports to collide), in a session of its own under
`keeper.py`, which ends everything the student's code started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import psutil
import zmq
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from utils.selfcheck.cell import CellRun, Execution

MARKER = "COURSE_KERNEL"
START_S = 90.0


class KernelFailed(RuntimeError):
    """The kernel did not start; the text says what was seen."""


class KernelSession:
    """A kernel in `cwd`; use it as a context manager.

    Args:
        cwd: folder in which the cells run.
        env: environment of the kernel; None takes this process's own.
        scratch: a folder that is removed with the session, even when this process is killed.

    Raises:
        KernelFailed: the kernel did not answer within START_S seconds.

    Example:
        with KernelSession(Path.cwd()) as session:
            session.run("1 / 0", limit=5).ename          # 'ZeroDivisionError'
    """

    def __init__(self, cwd: Path, env: dict[str, str] | None = None, scratch: Path | None = None) -> None:
        self._marker = uuid.uuid4().hex
        self._dir = Path(tempfile.mkdtemp(prefix="kernel-"))
        self._folders = [self._dir, scratch] if scratch else [self._dir]
        self._kernel_pid: int | None = None
        self.exit_code: int | None = None
        self.ended = 0
        env = {**(os.environ if env is None else env), MARKER: self._marker}
        try:
            self._start(cwd, env)
        except BaseException:
            self.stop()
            raise

    def _start(self, cwd: Path, env: dict[str, str]) -> None:
        file, info = write_connection_file(
            str(self._dir / "kernel.json"), transport="ipc", ip=str(self._dir / "k")
        )
        keeper = Path(__file__).with_name("keeper.py")
        self._keeper = subprocess.Popen(
            [
                sys.executable,
                "-P",
                str(keeper),
                os.pathsep.join(map(str, self._folders)),
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "-f",
                file,
                "--HistoryManager.hist_file=:memory:",
            ],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._gone = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._client = BlockingKernelClient()
        self._client.load_connection_info(info)
        self._client.start_channels(stdin=False, hb=False)
        self._wait_ready()

    def _listen(self) -> None:
        for line in self._keeper.stdout:
            word, _, value = line.strip().partition(" ")
            if word == "pid":
                self._kernel_pid = int(value)
            elif word == "exit":
                self.exit_code = int(value)
            elif word == "ended":
                self.ended = int(value)
        self._gone.set()

    @property
    def alive(self) -> bool:
        """Whether the kernel process still runs."""
        return self.exit_code is None and not self._gone.is_set()

    def _wait_ready(self) -> None:
        give_up = time.monotonic() + START_S
        heard_shell = heard_iopub = False
        while not (heard_shell and heard_iopub):
            if not self.alive:
                raise KernelFailed(
                    f"the Python kernel ended at its start with exit code {self.exit_code}; "
                    "`python -m ipykernel --version` shows whether ipykernel is installed"
                )
            if time.monotonic() > give_up:
                raise KernelFailed(f"the Python kernel did not answer within {START_S:.0f} s")
            self._client.kernel_info()
            for _ in range(5):
                shell, iopub = self.poll(0.1)
                heard_shell, heard_iopub = heard_shell or bool(shell), heard_iopub or bool(iopub)
                if heard_shell and heard_iopub:
                    break
        while any(self.poll(0.05)):
            pass

    def poll(self, seconds: float) -> tuple[dict | None, dict | None]:
        """At most one message from the shell and one from the iopub channel."""
        channels = (self._client.shell_channel, self._client.iopub_channel)
        poller = zmq.Poller()
        for channel in channels:
            poller.register(channel.socket, zmq.POLLIN)
        ready = dict(poller.poll(seconds * 1000))
        return tuple(channel.get_msg(timeout=0) if channel.socket in ready else None for channel in channels)

    def run(self, code: str, limit: float) -> CellRun:
        """Run one cell for at most `limit` seconds; interrupts, then kills, what does not stop."""
        if not self.alive:
            return CellRun("died", exit_code=self.exit_code)
        return Execution(self, code, limit).result()

    def send(self, code: str) -> str:
        """Ask the kernel to execute `code`; the id that its answers carry."""
        return self._client.execute(code, allow_stdin=False, stop_on_error=False)

    def interrupt(self) -> None:
        """Send SIGINT to the kernel's process group, as Jupyter's stop button does."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the kernel's process group at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, sig: int) -> None:
        if self._kernel_pid and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._kernel_pid, sig)

    def stop(self) -> int:
        """End the kernel and all it started, verified; returns how many other processes had to be killed."""
        if hasattr(self, "_client"):
            if self.alive:
                self._client.shutdown()
                self.await_exit(2.0)
            self._client.stop_channels()
        if hasattr(self, "_keeper"):
            self._keeper.stdin.close()
            try:
                self._keeper.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
            self._listener.join(timeout=5)
            self._keeper.stdout.close()
        self.ended += end_marked(self._marker)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        return self.ended

    def await_exit(self, seconds: float) -> None:
        """Wait until the kernel process has ended, at most `seconds`."""
        give_up = time.monotonic() + seconds
        while self.alive and time.monotonic() < give_up:
            time.sleep(0.02)

    def __enter__(self) -> KernelSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def end_marked(marker: str) -> int:
    """Kill every process that inherited the session's marker; how many there were.

    The keeper has ended the kernel's descendants already: this is the check, and on systems without
    subreapers (macOS) it finds those that detached themselves.
    """
    found: set[int] = set()
    for _ in range(50):
        left = [process for process in psutil.process_iter() if _carries(process, marker)]
        if not left:
            break
        found.update(process.pid for process in left)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.1)
    return len(found)


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        return (
            process.pid != os.getpid()
            and process.environ().get(MARKER) == marker
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.Error, OSError):
        return False
