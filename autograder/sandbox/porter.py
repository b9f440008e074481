"""What runs in a pod between the grader and the answering process; its text travels with the Job, the image has none.

Sent as the environment variable PORTER and run by `python -c "import os; exec(os.environ['PORTER'])" hold|serve`, so
it has the standard library alone. `hold` is the pod's first process: it reaps, and ends when nobody comes or when it
is told to. `serve` is what `kubectl exec -i` runs: it unpacks files, starts the answering process and carries frames.

A frame is one byte of kind, four of length, a body. Whatever the answering process prints comes through pipes of its
own and goes out as frames O and E: no text of a student's can be taken for a frame.

| kind | to the pod                         | kind | to the grader |
|------|------------------------------------|------|---------------|
| T    | a folder's name, 0, a tar of files | H    | JSON: python, network (what answered though nothing should) |
| R    | JSON: command, environment, most   | C    | bytes of the answering process's channel |
| C    | bytes for the channel              | O, E | what it printed |
| I    | interrupt it                       | U    | JSON: memory, processes, loopback |
| U    | tell what was used                 | X    | JSON: code, reason, and the fields of U; the last frame |
"""

import ctypes
import io
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import time

HEAD = struct.Struct("<cI")
CHUNK = 1 << 16
NOBODY_CAME_S = 300
PR_SET_DUMPABLE = 4
CGROUP = "/sys/fs/cgroup/"


def hold():
    """Be the pod's first process until told to end, or until nobody has come for NOBODY_CAME_S."""
    wanted = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    until = time.monotonic() + NOBODY_CAME_S
    came = False
    while came or time.monotonic() < until:
        found = signal.sigtimedwait(wanted, 5)
        if found is None:
            continue
        if found.si_signo == signal.SIGTERM:
            return
        came = came or found.si_signo == signal.SIGUSR1
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def first_process(number):
    """Signal the pod's first process, and no other machine's."""
    try:
        with open("/proc/1/environ", "rb") as file:
            ours = b"PORTER=" in file.read()
    except OSError:
        ours = False
    if ours:
        os.kill(1, number)


class Server:
    """The carrier of one answering process."""

    def __init__(self):
        self.inbox, self.to_child = bytearray(), bytearray()
        self.process = self.channel = None
        self.pipes = {}  # descriptor: kind of frame
        self.most, self.looked, self.reason = None, 0.0, ""

    def send(self, kind, body=b""):
        data = memoryview(HEAD.pack(kind, len(body)) + body)
        while data:
            data = data[os.write(1, data) :]

    def tell(self, kind, **fields):
        self.send(kind, json.dumps(fields).encode())

    def serve(self):
        """Carry until the grader hangs up or the answering process ends."""
        self.tell(b"H", python=list(sys.version_info[:2]), network=network())
        while self.process is None or self.process.poll() is None:
            readable = [0, *self.pipes] + ([self.channel] if self.channel else [])
            writable = [self.channel] if self.to_child else []
            ready, can_write, _ = select.select(readable, writable, [], 0.2)
            if 0 in ready and not self.hear():
                return
            if can_write:
                self.pass_in()
            self.pass_out()  # text before what follows it on the channel
            if self.channel in ready:
                self.pass_channel()
            self.count()
        self.last()

    def hear(self):
        """Take frames; False when the grader is gone."""
        data = os.read(0, CHUNK)
        self.inbox += data
        while len(self.inbox) >= HEAD.size:
            kind, size = HEAD.unpack_from(self.inbox)
            if len(self.inbox) < HEAD.size + size:
                break
            body = bytes(self.inbox[HEAD.size : HEAD.size + size])
            del self.inbox[: HEAD.size + size]
            self.frame(kind, body)
        return bool(data)

    def frame(self, kind, body):
        if kind == b"T":
            folder, _, data = body.partition(b"\0")
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extraction_filter = lambda member, _: member  # the pod is all there is to harm
                archive.extractall(folder.decode())
        elif kind == b"R":
            self.run(**json.loads(body))
        elif kind == b"C":
            self.to_child += body
        elif kind == b"I" and self.process:
            self.process.send_signal(signal.SIGINT)
        elif kind == b"U":
            self.tell(b"U", **used())

    def run(self, command, environment, most):
        """Start the answering process on descriptors of its own."""
        self.channel, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        given = [theirs.fileno(), out[1], err[1]]
        self.process = subprocess.Popen(
            [sys.executable, *command, *map(str, given)], env=environment, pass_fds=given, cwd="/",
            stdin=subprocess.DEVNULL, stdout=out[1], stderr=err[1], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        for pipe, kind in ((out, b"O"), (err, b"E")):
            os.close(pipe[1])
            os.set_blocking(pipe[0], False)
            self.pipes[pipe[0]] = kind
        self.channel.setblocking(False)
        self.most = most
        # no process of the same user may read this one's memory or take its descriptors
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)

    def pass_in(self):
        try:
            del self.to_child[: self.channel.send(self.to_child[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.to_child.clear()

    def pass_out(self):
        for fd, kind in list(self.pipes.items()):
            for _ in range(16):  # more than a pipe holds; the rest has its turn
                try:
                    data = os.read(fd, CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    del self.pipes[fd]
                    break
                self.send(kind, data)

    def pass_channel(self):
        """True while there is more."""
        try:
            data = self.channel.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.send(b"C", data)
        else:  # it closed its end; its exit is what counts
            self.channel.close()
            self.channel = None
            self.to_child.clear()
        return bool(data)

    def count(self):
        """End all when more processes run than may."""
        if self.most is None or time.monotonic() < self.looked + 0.2:
            return
        self.looked = time.monotonic()
        if len([name for name in os.listdir("/proc") if name.isdigit()]) - 2 > self.most:
            self.reason = "processes"
            self.process.kill()
            self.process.wait()

    def last(self):
        """What is left to carry, and how it ended."""
        self.pass_out()
        while self.channel and self.pass_channel():
            pass
        now = used()
        reason = self.reason or ("memory" if now["oom"] and self.process.returncode == -9 else "")
        self.tell(b"X", code=self.process.returncode, reason=reason, **now)
        until = time.monotonic() + 20
        while time.monotonic() < until:  # the grader hangs up when it has read this
            if select.select([0], [], [], 1)[0] and not os.read(0, CHUNK):
                return


def number(path, word=""):
    """The number in a file of the kernel's, behind `word` where one is given; 0 where there is none."""
    try:
        with open(path) as file:
            rows = [line.split() for line in file]
    except OSError:
        return 0
    found = [row[-1] for row in rows if row and (not word or row[0] == word)]
    return int(found[0]) if found and found[0].isdigit() else 0


def used():
    """What the pod has used so far, by the kernel's count."""
    loopback = 0
    with open("/proc/net/dev") as file:
        for line in file:
            if line.strip().startswith("lo:"):
                loopback = int(line.split(":")[1].split()[8])
    return {
        "memory": number(CGROUP + "memory.peak"), "processes": number(CGROUP + "pids.peak"), "loopback": loopback,
        "oom": number(CGROUP + "memory.events", "oom_kill"),
    }  # fmt: skip


def network():
    """The address of the cluster's API where it can be reached from here, which a network policy should prevent."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    try:
        socket.create_connection((host, int(port)), 1.5).close()
    except OSError:
        return ""
    return f"{host}:{port}"


if __name__ == "__main__":
    if sys.argv[1:] == ["hold"]:
        hold()
    elif sys.argv[1:] == ["serve"]:
        first_process(signal.SIGUSR1)
        try:
            Server().serve()
        finally:
            first_process(signal.SIGTERM)
