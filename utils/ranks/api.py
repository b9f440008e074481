"""`launch`: run a function on several ranks and get plain values back."""

from __future__ import annotations

import os
import pickle
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..trace import diagnose, matching, report
from . import rank as rank_module
from . import wire
from .client import Client, client
from .devices import Placement, place
from .errors import BadLaunch, LaunchError, RankFailed
from .failures import failure
from .job import Job
from .options import DEFAULT_TIMEOUT, Options
from .output import viewer
from .run import Run
from .ship import pack
from .supervise import Supervisor

NO_LIMIT = 30 * 24 * 3600.0
_one_at_a_time = threading.Lock()


def launch(
    fn: Callable[..., Any],
    *args: Any,
    ranks: int | None = 2,
    timeout: float | None = DEFAULT_TIMEOUT,
    trace: bool = True,
    backend: str = "auto",
    device: str = "auto",
    seed: int = 0,
    show: bool | str = True,
    debug: int | None = None,
    delay: Mapping[int, float] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Run:
    """Run `fn(*args)` on `ranks` fresh processes with torch.distributed initialised, and return their values.

    fn may be defined in a cell; what it uses travels by value. Inside it, `dist.get_rank()` tells the ranks apart.
    ranks: how many; None for one fresh process without a process group. timeout: seconds for the whole run, None for no
    limit; the environment variable UTILS_TIMEOUT caps it. trace: journal every operation (microseconds each); without
    it a hang ends only at the time limit. backend: "auto" is nccl where each rank can have a GPU, else gloo. device:
    "auto", "cpu" or "cuda", which with fewer GPUs than ranks shares them under gloo. seed: rank r starts with a seed of
    its own derived from it. show: print what ranks print, as it comes; "grouped": one area a rank. debug: the rank to
    step under pdb, with no time limit. delay: {rank: seconds} to start late. kwargs: keyword arguments of fn.

    Returns a Run: values, stdout, stderr, peak_bytes (one a rank), trace, seconds.
    Raises BadLaunch (bad argument, or something that cannot travel), RankFailed (the first rank to fail, its traceback
    first), Deadlock, Mismatch, LaunchTimeout: all LaunchError, whose text is the report.

    Worked example:
        def add():
            x = torch.tensor([1.0 + dist.get_rank()])
            dist.all_reduce(x)
            return x.item()
        launch(add, ranks=4).values  # [10.0, 10.0, 10.0, 10.0]
    """
    options = Options(ranks, timeout, trace, backend, device, seed, show, debug, delay, kwargs)
    return (router or launch_here)(fn, *args, **vars(options))


router: Callable[..., Run] | None = None
"""Where `launch` goes in a grader's process, which runs no student code: to the process that holds the student's."""


def launch_here(fn: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """`launch` on this machine's own ranks, whatever `router` says: for oracles."""
    wanted = Options(**options)
    wanted.check()
    if not callable(fn):
        raise BadLaunch(
            f"the first argument must be a function, but it is a {type(fn).__name__}: "
            "write launch(step), not launch(step())."
        )
    placement = place(wanted.ranks, wanted.backend, wanted.device)
    payload, sources = pack(fn, args, wanted.kwargs)
    with _one_at_a_time:
        return _run(getattr(fn, "__name__", "the function"), payload, sources, wanted, placement)


def _run(name: str, payload: bytes, sources: dict[str, str], wanted: Options, placement: Placement) -> Run:
    server, ranks, limit, debug = client(), wanted.ranks, wanted.limit(), wanted.debug
    try:
        taken = server.take(ranks or 1)
    except OSError:
        raise RankFailed("the rank server was killed; the next launch starts another.") from None
    traced = wanted.trace and debug is None and ranks is not None
    boss = Supervisor(server, taken, limit, viewer(wanted.show, ranks), None if debug is None else _ask, traced)
    boss.find_class = _find_class
    try:
        with _Store() as store:
            for r, one in enumerate(taken):
                job = Job(
                    r, ranks, payload, sources, placement.backend, placement.devices[r], store.path,
                    NO_LIMIT if limit is None else limit + 60, wanted.trace, debug == r, wanted.delay.get(r, 0.0),
                    rank_seed(wanted.seed, r), os.getcwd(), list(sys.path), _environment(r, ranks),
                )  # fmt: skip
                _send(one.sock, job, store.fds)
            outcome = boss.watch_run()
        if outcome.why != "done":
            boss.end(patient=True)  # exit codes are part of the report
            boss.pump_pipes()
            raise failure(boss, outcome, name)
        return _finish(boss, outcome.pairing, placement)
    except KeyboardInterrupt as error:
        if isinstance(error, LaunchError):
            raise
        raise failure(boss, boss.outcome("interrupted"), name) from None
    finally:
        boss.close()


def _send(sock: Any, job: Job, fds: list[int]) -> None:
    """Send a job: one byte that carries the descriptors, then the job itself. A rank that died already is met later."""
    import socket

    try:
        if fds:
            socket.send_fds(sock, [b"j"], fds)
        else:
            sock.sendall(b"j")
        wire.send(sock, wire.JOB, pickle.dumps(job))
    except (BrokenPipeError, ConnectionError):
        pass


def _finish(boss: Supervisor, pairing: matching.Pairing, placement: Placement) -> Run:
    """Check that the ranks' operations fit each other, then hand out what came back."""
    boss.pump_pipes()
    trace = boss.trace()
    found = diagnose.faults(pairing, finished=True) if trace.complete else []
    if found:
        from .errors import Mismatch

        raise Mismatch(report.mismatch(found[0]))
    results = [r or {} for r in boss.results]
    notes = [note for r in results for note in r.get("notes", [])]
    notes += [
        f"rank {e.rank}: {diagnose.label(e)} was never matched, {report.at(e)}" for e in diagnose.unmatched(pairing)
    ]
    if boss.view is not None:
        for note in notes:
            print(f"note: {note}")
    return Run(
        [r["value"] for r in results], [c.text for c in boss.out], [c.text for c in boss.err],
        [int(r["peak"]) for r in results], trace.seconds, trace, placement.backend, placement.devices[0], notes,
    )  # fmt: skip


def _ask(text: str) -> str:
    """Show what pdb printed and read a line from the person at the notebook."""
    return input(text)


def rank_seed(seed: int, rank: int) -> int:
    """A seed of the rank's own: different for every rank, the same in every launch with the same `seed`."""
    return random.Random(f"{seed}/{rank}").getrandbits(31)


def _environment(rank: int, ranks: int | None) -> dict[str, str]:
    """The kernel's environment as it is now, and what torchrun would set."""
    env = {
        k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "UTILS_RANK_SERVER")
    }
    if ranks is not None:
        env |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
        }
    return env


def _find_class(module: str, qualname: str) -> type | None:
    """A class that this process already has, to rebuild a returned dataclass."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


class _Store:
    """The file through which ranks find each other: nameless on Linux, so that nothing is left whoever dies."""

    def __enter__(self) -> _Store:
        self.fds: list[int] = []
        self.path = ""
        if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
            self.fds = [os.memfd_create("store", os.MFD_CLOEXEC)]
        else:
            self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
            self.path = os.path.join(self.folder.name, "store")
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)
        if self.path:
            self.folder.cleanup()


def warm_up() -> None:
    """Start the fork server in the background, so that the first launch finds it ready."""
    if not rank_module.IN_RANK and sys.platform != "win32" and "UTILS_RANK_SERVER" not in os.environ:
        client()


__all__ = ["Client", "launch", "launch_here", "warm_up"]
