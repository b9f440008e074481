"""One rank: stand by, take a job, set up the process group, run the function, send the value back, wait to be ended.

Everything here runs in a process forked from the server, with torch imported. A rank that stands by rehearses: it forms
a group of one. Then it blocks until the kernel sends a job.
"""

from __future__ import annotations

import datetime
import faulthandler
import io
import linecache
import os
import pickle
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

import cloudpickle

from ..trace import journal as jn
from ..trace.sites import is_user_file
from . import plain, wire
from .job import Job
from .scheduling import patient_threads
from .server import PR_SET_PDEATHSIG, prctl

IDLE = 0.1  # seconds without a job after which a rank rehearses, which makes its start quicker and costs milliseconds
IN_RANK = False  # True in a rank: a launch inside a launch is refused


def main(sock: socket.socket, pipes: list[int], book: int, server_pid: int, rehearsing: bool) -> None:
    """Life of a rank; never returns."""
    global IN_RANK
    IN_RANK = True
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server_pid:
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, err, stacks = pipes
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0, closefd=False), "utf-8", "backslashreplace", write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), "utf-8", "backslashreplace", write_through=True)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    writer = jn.Writer.open(book)
    if rehearsing and not select.select([sock], [], [], IDLE)[0]:  # nobody launches right now
        rehearse(writer)
        writer = jn.Writer(writer.map)
    received = receive_job(sock)
    if received is None:
        os._exit(0)
    job, fds = received
    try:
        run(job, fds, sock, writer)
    finally:
        os._exit(0)


def rehearse(writer: jn.Writer) -> None:
    """Form and leave a traced group of one: what a real group needs is then loaded, cached, and on pages of our own."""
    import torch
    import torch.distributed as dist

    from ..trace.install import NAME, install

    torch.set_num_threads(1)
    install(writer, "gloo")
    dist.init_process_group(NAME, store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    plain.encode({"x": torch.ones(1)})
    dist.destroy_process_group()
    seed(0)  # numpy's generators are loaded at first use
    pickle.loads(cloudpickle.dumps(lambda: dist.get_rank()))


def receive_job(sock: socket.socket) -> tuple[Job, list[int]] | None:
    """The job and the descriptors that come with its first byte; None when the kernel went away."""
    data, fds, _, _ = socket.recv_fds(sock, 1, 4)
    if not data:
        return None
    message = wire.receive(sock)
    return None if message is None else (pickle.loads(message[1]), list(fds))


def run(job: Job, fds: list[int], sock: socket.socket, writer: jn.Writer) -> None:
    """Do the job and send its value or its error; then stay, so that the others' connections hold, until ended."""
    if sys.platform != "linux":
        threading.Thread(target=_die_with, args=(sock,), daemon=True).start()
    wire_out = _Channel(sock)
    try:
        prepare(job)
        join_group(job, fds, writer)
        seed(job.seed, job.device.startswith("cuda"))
        fn, args, kwargs = pickle.loads(job.payload)
        baseline = memory_baseline()
        writer.put(jn.START_AT, time.monotonic_ns())
        if job.delay:
            time.sleep(job.delay)
        value = call(job, wire_out, fn, args, kwargs)
        peak = memory_peak(baseline)
        finish(writer, jn.RETURNED)
        sys.stdout.flush()
        sys.stderr.flush()
        wire_out.send(wire.VALUE, plain.encode({"value": value, "peak": peak, "notes": notes()}))
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the student's code end here too
        finish(writer, jn.RAISED)
        wire_out.send(wire.ERROR, plain.encode(describe(error)))
    sock.settimeout(None)
    wire.receive(sock)


def call(job: Job, channel: _Channel, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function, under pdb where the job says so, and finish what CUDA still has to do."""
    import torch

    if job.debug:
        from .debug import run_under_pdb

        value = run_under_pdb(channel, fn, args, kwargs)
    else:
        sys.breakpointhook = _no_breakpoint
        value = fn(*args, **kwargs)
    if job.device.startswith("cuda"):
        torch.cuda.synchronize()
    return value


def _no_breakpoint(*_: Any, **__: Any) -> None:
    raise RuntimeError("breakpoint() needs a terminal: step one rank with launch(..., debug=RANK) instead")


def finish(writer: jn.Writer, state: int) -> None:
    writer.put(jn.STATE_TIME_AT, time.monotonic_ns())
    writer.put(jn.STATE_AT, state)


def prepare(job: Job) -> None:
    """Make this process look like the kernel: folder, import path, environment, sources."""
    os.chdir(job.cwd)
    sys.path[:] = job.path
    os.environ.update(job.env)
    for name, text in job.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)


def seed(value: int, cuda: bool = False) -> None:
    """Seed torch, numpy and random with this rank's own number."""
    import numpy as np
    import torch

    torch.default_generator.manual_seed(value)  # torch.manual_seed also walks every device, for milliseconds
    if cuda:
        torch.cuda.manual_seed_all(value)
    np.random.seed(value % 2**32)
    random.seed(value)


def join_group(job: Job, fds: list[int], writer: jn.Writer) -> None:
    """Initialise torch.distributed over a file that all ranks of the job share."""
    import torch
    import torch.distributed as dist

    from ..trace.install import NAME, install

    if job.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(job.device))
        torch.set_default_device(job.device)
    if job.world_size is None:
        return
    path = f"/proc/self/fd/{fds[0]}" if fds else job.store
    writer.put(jn.START_AT, jn.MEETING)
    install(writer, job.backend)
    with patient_threads():
        dist.init_process_group(
            NAME if job.trace else job.backend, store=dist.FileStore(path, job.world_size), rank=job.rank,
            world_size=job.world_size, timeout=datetime.timedelta(seconds=job.limit),
        )  # fmt: skip


def describe(error: BaseException) -> dict[str, Any]:
    """What the kernel needs to know of an exception: its kind, text, traceback from the student's frames, and when."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if is_user_file(f.filename)]  # frames of torch and of ours teach nothing here
    frames = traceback.StackSummary.from_list([] if isinstance(error, plain.NotPlain) else own or frames)
    text = "".join(traceback.format_list(frames) + traceback.format_exception_only(type(error), error))
    where = [(f.filename, f.lineno or 0, f.name, f.line or "") for f in frames]
    plainness = (
        [error.path.replace("result['value']", "result", 1), error.kind] if isinstance(error, plain.NotPlain) else None
    )
    return {
        "kind": type(error).__name__, "text": str(error), "traceback": text, "frames": where,
        "time": time.monotonic_ns(), "not_plain": plainness,
    }  # fmt: skip


def notes() -> list[str]:
    """Things worth telling about a run that succeeded."""
    left = [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    return [f"a thread ({', '.join(left)}) was still running when the function returned"] if left else []


def memory_baseline() -> int:
    """Resident bytes now, with the high-water mark reset to here."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return _status("VmRSS")
    except OSError:
        return _maxrss()


def memory_peak(baseline: int) -> int:
    """Peak resident bytes since the baseline."""
    try:
        return max(0, _status("VmHWM") - baseline)
    except OSError:
        return max(0, _maxrss() - baseline)


def _status(key: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    raise OSError(key)


def _maxrss() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Channel:
    """The rank's end of its socket, safe to use from more than one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.lock = sock, threading.Lock()

    def send(self, kind: bytes, body: bytes) -> None:
        with self.lock:
            wire.send(self.sock, kind, body)

    def ask(self, text: str) -> str | None:
        """Send text to the reader's cell and wait for a line; None when there will be none."""
        self.send(wire.ASK, text.encode())
        answer = wire.receive(self.sock)
        return answer[1].decode() if answer is not None and answer[0] == wire.ANSWER else None


def _die_with(sock: socket.socket) -> None:
    """Where the system cannot kill a child with its parent: leave when the socket closes."""
    while True:
        time.sleep(0.5)
        try:
            if sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                os._exit(0)
        except BlockingIOError:
            continue
        except OSError:
            os._exit(0)
