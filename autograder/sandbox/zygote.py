"""A warm process outside every sandbox: torch is loaded once, and each answering process is forked from it.

    python -m autograder.sandbox.zygote CONTROL_FD

It holds no secret: it is started with an environment of its own, reads no lab, and has no descriptor but the control
socket. It starts bubblewrap with a program that only waits, forks a child that joins the waiting namespaces and has
nothing of the outside left, and that child becomes the answering process. It is the parent of all of them, so their
exit codes are known; when the grader goes away it ends, and bubblewrap ends every sandbox with it.

A grader of several processes has a branch of it for each, so that torch is loaded once for all.

One request is one packet: JSON, with the descriptors channel, out, err, hold and status. `hold` is the waiting
program's stdin, whose other end the grader keeps: the sandbox ends when that closes. The exit code of the answering
process is written to `status`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from autograder.scratch import scratch
from utils.ranks.environment import environment
from utils.ranks.reaping import ended_children

PATIENCE_S = 30.0
CLONE_NEWUSER = 0x10000000
# mount, cgroup, uts, ipc, pid, net
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
PR_SET_CHILD_SUBREAPER = 36
MOST_REQUEST = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(RuntimeError):
    """A step of starting a sandbox failed; `step` is hidden, bubblewrap or join."""

    def __init__(self, step: str, text: str) -> None:
        super().__init__(text)
        self.step = step


@dataclass
class Waiting:
    """A started sandbox: its bubblewrap process, and its first process as seen from outside."""

    monitor: int
    init: int


class Zygote:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.status: dict[int, int] = {}  # descriptors that await the exit code of a process

    def serve(self) -> None:
        """Answer requests until the grader hangs up."""
        wake, wake_write = os.pipe()
        for fd in (wake, wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.control.send(b"{}")
        while True:
            ready, _, _ = select.select([self.control, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                self.reap()
            if self.control in ready and not self.request():
                return

    def reap(self) -> None:
        """Bury what ended and tell the exit codes that are waited for."""
        for pid, code in ended_children():
            fd = self.status.pop(pid, None)
            if fd is not None:
                tell(fd, code)

    def request(self) -> bool:
        """One sandbox; False when the grader is gone."""
        data, fds, _, _ = socket.recv_fds(self.control, MOST_REQUEST, 8)
        if not data:
            return False
        if json.loads(data).get("branch"):
            self.branch(fds[0])
            return True
        channel, out, err, hold, status = fds
        try:
            reply = self.start(json.loads(data), channel, out, err, hold, status)
        except Refused as error:
            os.close(status)
            reply = {"step": error.step, "error": str(error)}
        finally:
            for fd in (channel, out, err, hold):
                os.close(fd)
        self.control.send(json.dumps(reply).encode())
        return True

    def branch(self, control: int) -> None:
        """Fork a warm process of its own for another process of the grader, which holds the other end of `control`."""
        if os.fork():
            os.close(control)
            return
        try:
            self.control.close()
            for fd in self.status.values():
                os.close(fd)
            os.setsid()
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            Zygote(socket.socket(fileno=control)).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def start(self, asked: dict[str, Any], channel: int, out: int, err: int, hold: int, status: int) -> dict[str, int]:
        known = [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
        for path in asked["hidden"]:
            if any(file == path or file.startswith(path + os.sep) for file in known):
                raise Refused("hidden", f"{path} is part of what every answering process has loaded")
        if asked["join"]:
            place = spawn([*asked["argv"], "/bin/cat"], hold, (), subprocess.PIPE)
            pid = self.join(place, asked["user"], [channel, out, err])
            self.status[pid] = status
        else:
            fds = [channel, out, err]
            place = spawn([*asked["argv"], *asked["program"], *map(str, fds)], hold, fds, None)
            pid = only_child(place.init)
            self.status[place.monitor] = status
        return {"monitor": place.monitor, "init": place.init, "pid": pid}

    def join(self, place: Waiting, user: bool, fds: list[int]) -> int:
        """Fork a process into the namespaces of `place`; its pid as seen from here."""
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            try:
                os.close(read)
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.enter(place, user, fds, write)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as file:
            told = file.read()
        os.waitpid(between, 0)
        if not told.isdigit():
            os.kill(place.init, signal.SIGKILL)
            raise Refused("join", told or "the process that was to join ended")
        return int(told)

    def enter(self, place: Waiting, user: bool, fds: list[int], write: int) -> None:
        """In a fork: join the namespaces, fork once more (a pid namespace holds for children only), and serve there."""
        target = os.pidfd_open(place.init)
        if _libc.setns(target, NAMESPACES | (CLONE_NEWUSER if user else 0)):
            os.write(write, f"setns was refused: {os.strerror(ctypes.get_errno())}".encode())
            os._exit(1)
        pid = os.fork()
        if pid:
            os.write(write, str(pid).encode())
            os._exit(0)
        become_answering(fds)


def become_answering(fds: list[int]) -> None:
    """In the sandbox: forget all that came from outside and be the answering process; never returns."""
    try:
        os.setsid()
        channel, out, err = keep_only(fds)
        for name in [n for n in sys.modules if n == "autograder" or n.startswith("autograder.")]:
            del sys.modules[name]
        from utils.answering import serve

        serve.main(socket.socket(fileno=channel), out, err)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        os._exit(0)


def keep_only(fds: list[int]) -> list[int]:
    """Close every descriptor but `fds`, which become 3, 4 and 5; 0, 1 and 2 lead nowhere."""
    high = [os.dup2(os.dup(fd), 200 + i, inheritable=False) for i, fd in enumerate(fds)]
    empty = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(empty, fd)
    kept = [os.dup2(fd, 3 + i, inheritable=False) for i, fd in enumerate(high)]
    os.closerange(3 + len(kept), os.sysconf("SC_OPEN_MAX"))
    return kept


def spawn(argv: list[str], hold: int, fds: Any, echo: int | None) -> Waiting:
    """Start bubblewrap and wait until its sandbox stands: the program in it has echoed a byte, or is running.

    Its options, which name folders of this machine, go through a file: its command line can be read in the sandbox.
    """
    info_read, info_write = os.pipe()
    at = argv.index("--chdir")
    told = unseen([*argv[1:at], "--info-fd", str(info_write), *argv[at : at + 2]])
    process = subprocess.Popen(
        [argv[0], "--args", str(told), *argv[at + 2 :]], stdin=hold, stdout=echo or subprocess.DEVNULL,
        stderr=subprocess.PIPE, pass_fds=[info_write, told, *fds], env={"PATH": os.environ["PATH"]}, cwd="/",
    )  # fmt: skip
    os.close(told)
    os.close(info_write)
    try:
        info = read_until(info_read, b"}")
        if echo is not None and info:
            info = info if read_until(process.stdout.fileno(), b"\n") else b""
        if not info:
            process.kill()
            said = process.stderr.read().decode(errors="replace").strip()
            raise Refused("bubblewrap", said or "it ended without a word")
        return Waiting(process.pid, json.loads(info)["child-pid"])
    finally:
        os.close(info_read)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.returncode = 0  # reaped by `reap`, not by subprocess


def unseen(options: list[str]) -> int:
    """A nameless file with options as bubblewrap's `--args` reads them."""
    fd = os.memfd_create("options")
    with open(fd, "wb", closefd=False) as file:
        file.write(b"\0".join(os.fsencode(option) for option in options) + b"\0")
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_until(fd: int, end: bytes) -> bytes:
    """Bytes up to `end`; nothing where the other side closes, or PATIENCE_S pass, before it."""
    data = b""
    while not data.rstrip(b"\n " if end != b"\n" else b"").endswith(end):
        if not select.select([fd], [], [], PATIENCE_S)[0] or not (part := os.read(fd, 4096)):
            return b""
        data += part
    return data


def only_child(pid: int) -> int:
    """The process that a sandbox's first process started."""
    while True:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = file.read().split()
        if found:
            return int(found[0])
        select.select([], [], [], 0.002)


def tell(fd: int, code: int) -> None:
    try:
        os.write(fd, str(code).encode())
    except OSError:
        pass  # nobody waits any more
    finally:
        os.close(fd)


def load() -> None:
    """Load what answers use. matplotlib wants a folder for its list of fonts: where home is none, one for the time."""
    from utils.answering import serve

    # a user without a name, as in many containers, has "~" for a home
    if os.access(os.path.expanduser("~"), os.W_OK):
        serve.preload()
        return
    with scratch("fonts") as folder, environment(MPLCONFIGDIR=folder):
        serve.preload()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if sys.argv[2:] != ["cold"]:
        load()
    Zygote(control).serve()


if __name__ == "__main__":
    main()
