"""Many submissions at once on one machine: worker processes that have torch loaded, one grader that writes marks."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from autograder import worker
from autograder.sandbox import SandboxRefused
from autograder.sandbox.warm import branch_off, warm_process
from utils.answering.serve import adopt_rank_server, preload
from utils.ranks.environment import environment

GIB_EACH = 2.5  # memory that one submission at work may need


@dataclass(frozen=True)
class Task:
    """One submission to run: who, its cells as they will run, and the folder of its other files."""

    student: str
    cells: list[dict[str, Any]]
    files: Path | None = None


def jobs_here() -> int:
    """How many submissions this machine can run at once: one a core, as far as memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    room = int(psutil.virtual_memory().available / (GIB_EACH * 2**30))
    return max(1, min(cores, room))


def warm_up(sandbox: str) -> None:
    """Begin to load torch in the warm process, while this one still looks at the submissions."""
    _mother(sandbox)


def run_all(tasks: list[Task], data: Path, terms: worker.Terms, jobs: int) -> Iterator[tuple[Task, str]]:
    """Run the tasks, `jobs` at once, and yield each as it is done, with "" or why it could not be run."""
    left = [task for task in tasks if not worker.is_kept(data, task.cells, terms, task.files)]
    yield from ((task, "") for task in tasks if task not in left)
    if not left:
        return
    # Forked, not spawned: torch is loaded here once for all workers, and whoever is killed leaves no named semaphore.
    preload()
    context = multiprocessing.get_context("fork")
    mother = _mother(terms.sandbox)
    with (
        _for_ranks(),
        ProcessPoolExecutor(min(jobs, len(left)), mp_context=context, initializer=_begin, initargs=(mother,)) as pool,
    ):
        waiting: dict[Future[None], Task] = {pool.submit(_run, data, task, terms): task for task in left}
        for done in as_completed(waiting):
            error = done.exception()
            yield waiting[done], "" if error is None else f"{type(error).__name__}: {error}"


def _mother(sandbox: str) -> socket.socket | None:
    """The socket of this process's warm process, of which each worker gets a branch; None where there is no use."""
    if sandbox != "bubblewrap":
        return None
    try:
        return warm_process().control
    except (OSError, SandboxRefused):
        return None


def _for_ranks() -> AbstractContextManager[None]:
    """The environment of rank servers, while the workers that they are forked from start."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return environment(**one, TORCH_CPP_LOG_LEVEL="ERROR", GLOO_SOCKET_IFNAME=loopback)


def _begin(mother: socket.socket | None) -> None:
    """In a worker, before its first submission: what would load torch again is forked from where it is loaded."""
    if mother is not None:
        branch_off(mother)
        mother.close()
    if sys.platform == "linux":
        with socket.socket() as unused:
            adopt_rank_server(unused)


def _run(data: Path, task: Task, terms: worker.Terms) -> None:
    worker.run_kept(data, task.cells, terms, task.files)
