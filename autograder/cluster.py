"""Runs a class's submissions on a Dask cluster; marks and pages are made by the grader alone, as ever.

A worker gets a submission as JSON text and gives JSON text back. Its own process runs no student code: that is in a
sandbox, which talks to it in checked plain frames. So the text that comes back was written by this program, and it is
read as JSON, into dataclasses of plain fields whose types are checked. Dask itself carries code between its members by
pickle: scheduler and workers belong on a network of the staff's own, or behind Dask's TLS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from autograder import ahead, runs, serving, worker
from autograder.course import Course, UserError
from autograder.intake import Submission
from autograder.pool import Task

WAIT_S = 60.0
TRIES = 3  # workers that may be lost under one submission before the grader runs it itself

log = logging.getLogger("autograder")
_server = serving.Server()


def remote(task: str) -> str:
    """What a worker of the cluster does."""
    return _server.ask(task)


def run_on_cluster(course: Course, submissions: list[Submission], address: str) -> Iterator[Submission]:
    """Run the submissions on the cluster of a scheduler, and yield each when its run is kept.

    One whose run failed there is yielded too: the grader then runs it here.

    Raises:
        UserError: Dask is not installed, or no scheduler or worker answers.
    """
    made, tasks = ahead.make_tasks(course, submissions)
    yield from (one for one in submissions if one.student not in tasks)
    left = []
    for submission, task, terms in made:
        if worker.is_kept(course.data, task.cells, terms, task.files):
            yield submission
        else:
            left.append((submission, task, terms))
    if not left:
        return
    with _client(address) as client:
        from distributed import as_completed

        # not pure: a second submission like the first is one of its own; its key is the student's
        waiting = {client.submit(remote, _packed(task, terms), pure=False, retries=TRIES): (submission, task, terms)
                   for submission, task, terms in left}  # fmt: skip
        for future in as_completed(list(waiting)):
            submission, task, terms = waiting.pop(future)
            try:
                _keep(course, task, terms, future.result())
            except Exception as error:
                log.warning("%s is run here: %s", submission.student, error)
            yield submission


def _packed(task: Task, terms: worker.Terms) -> str:
    return json.dumps(serving.plain_task(task.cells, terms, task.files))


def _keep(course: Course, task: Task, terms: worker.Terms, reply: Any) -> None:
    """Check what a worker sent and keep it. Raises ValueError where it is no run."""
    told = json.loads(reply) if type(reply) is str else {}
    if type(told) is not dict or "ran" not in told:
        raise ValueError(told.get("error") if type(told) is dict else "what came back is not a run")
    name = runs.key(task.cells, terms.limits, terms.launch_s, terms.sandbox, task.files)
    runs.save(course.data, name, runs.from_record(told["ran"]))


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise UserError("Dask is not installed: pip install 'distributed-llm-course[cluster]'.") from None
    try:
        client = Client(address, timeout=WAIT_S)
    except (OSError, ValueError, TimeoutError):
        raise UserError(f"No Dask scheduler answers at {address}: start one, or correct --scheduler.") from None
    try:
        client.wait_for_workers(1, timeout=WAIT_S)
    except TimeoutError:
        client.close()
        raise UserError(f"The Dask scheduler at {address} has no worker: start one with --nthreads 1.") from None
    return client
