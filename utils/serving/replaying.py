"""Replaying a trace on a clock that counts computing only: waiting for the next arrival takes no time here.

The clock is the sum of what the steps took, measured; when nobody is there it jumps to the next arrival. So a run of
minutes can be repeated in seconds, and a slow machine serves the same trace, only later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from utils.serving.request import Request


@dataclass(frozen=True)
class Step:
    """One step: when it began and ended, and how many tokens of each request it computed, by id.

    prefill: the ids for which this was (part of) the prompt. used: whatever the caller's `used` said after it.
    """

    start: float
    end: float
    counts: Mapping[int, int]
    prefill: frozenset[int]
    used: float = 0.0


@dataclass
class Replay:
    """A run: its steps, and by id the arrival and the times of the tokens."""

    steps: list[Step] = field(default_factory=list)
    arrivals: dict[int, float] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)


def replay(
    requests: Sequence[Request],
    add: Callable[[Request], object],
    step: Callable[[], Mapping[int, int]],
    *,
    tick: float = 1.0,
    used: Callable[[], float] | None = None,
    cost: Callable[[Mapping[int, int]], float] | None = None,
    most_steps: int = 100_000,
) -> Replay:
    """Serve `requests`, given in order of arrival, until all are finished.

    add: hands a request that has arrived to the engine; step: one step of it, returns the new token by id; tick: how
    many seconds of the clock a unit of `arrival` lasts; used: looked at after every step, the blocks in use say;
    cost: the seconds of a step from its counts, in place of the measured ones. RuntimeError: after `most_steps` steps
    some are still not finished.

    >>> one = Request(id=0, prompt=[1], max_new=1)
    >>> replay([one], lambda request: None, lambda: one.output.append(5) or {0: 5}, cost=lambda counts: 2.0).times
    {0: [2.0]}
    """
    run, now, coming = Replay(), 0.0, list(requests)
    run.arrivals = {request.id: request.arrival * tick for request in requests}
    run.times = {request.id: [] for request in requests}
    live: list[Request] = []
    for _ in range(most_steps):
        if not live and coming:
            now = max(now, run.arrivals[coming[0].id])
        while coming and run.arrivals[coming[0].id] <= now:
            live.append(coming.pop(0))
            add(live[-1])
        if not live:
            return run
        before = {request.id: (request.computed, len(request.output)) for request in live}
        began = perf_counter()
        new = step()
        took = perf_counter() - began
        counts = {r.id: r.computed - before[r.id][0] for r in live if r.computed > before[r.id][0]}
        took = cost(counts) if cost else took
        prefill = frozenset(name for name in counts if before[name][1] == 0)
        run.steps.append(Step(now, now + took, counts, prefill, used() if used else 0.0))
        now += took
        for name in new:
            run.times[name].append(now)
        live = [request for request in live if not request.finished]
    raise RuntimeError(f"after {most_steps} steps {len(live) + len(coming)} requests are not finished")
