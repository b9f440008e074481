"""Discrete-event simulation of work and of messages that share links.

A task starts when all that it needs is over, and the task before it on the same stream. Work then takes a fixed time.
A flow first waits for its latency, then moves its bytes at a rate that depends on who else is on its links: links are
shared max-min fairly (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section 6.5.2), each flow
capped by its own limit. A flow may stand for several equal ones: it then weighs that much on a link. Between two
events all rates are constant, so that the next end is known and nothing is stepped through.

Left out: packets, slow start, routing, work that is interrupted.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

INFINITE = math.inf
_SAME = 1e-12  # relative: rates and moments nearer than this are one


@dataclass(slots=True)
class Task:
    """Work (nbytes 0) or a flow, which moves nbytes after `seconds`; when it ran, end = inf if it never did."""

    label: tuple
    seconds: float
    nbytes: float = 0.0
    limit: float = INFINITE
    uses: Mapping[Hashable, float] = field(default_factory=dict)
    owners: frozenset = frozenset()
    waits_for: int = 0
    then: list[int] = field(default_factory=list)
    start: float = INFINITE
    end: float = INFINITE


@dataclass
class _Moving:
    """A flow that moves bytes: what is left of it at a moment, and its rate since."""

    left: float
    at: float
    rate: float = 0.0
    version: int = 0


class Simulation:
    """Tasks, streams and links; build it, then `run`.

    capacities: bytes a second of each link that flows share; a link that is not named is never full.

    Two messages of 100 bytes over a link of 10 bytes a second, the second one behind 5 seconds of work. Alone the
    first would take 10 seconds; from 5 on each has half of the link:

    >>> sim = Simulation({"wire": 10.0})
    >>> first = sim.flow(100, uses={"wire": 1})
    >>> work = sim.work(5.0)
    >>> second = sim.flow(100, uses={"wire": 1}, after=[work])
    >>> sim.run()
    20.0
    >>> sim.tasks[first].end, sim.tasks[second].end
    (15.0, 20.0)
    """

    def __init__(self, capacities: Mapping[Hashable, float] | None = None) -> None:
        self.capacities = dict(capacities or {})
        self.tasks: list[Task] = []
        self._last: dict[Hashable, int] = {}
        self._on: dict[Hashable, set[int]] = defaultdict(set)  # link -> flows on it
        self._wanted: dict[Hashable, float] = defaultdict(float)  # link -> what they would take at their limits
        self._moving: dict[int, _Moving] = {}
        self._heap: list[tuple[float, int, int]] = []  # (moment, task, version of its rate; -1: a known time is over)
        self._dead: frozenset = frozenset()

    def work(
        self, seconds: float, *, after: Iterable[int] = (), stream: Hashable = None, label: tuple = (),
        owners: Iterable = (),
    ) -> int:  # fmt: skip
        """A task that takes this long; returns its number. owners: the machines without which it cannot go on."""
        return self._add(Task(label, seconds, owners=frozenset(owners)), after, stream)

    def flow(
        self, nbytes: float, *, latency: float = 0.0, limit: float = INFINITE,
        uses: Mapping[Hashable, float] | None = None, after: Iterable[int] = (), stream: Hashable = None,
        label: tuple = (), owners: Iterable = (),
    ) -> int:  # fmt: skip
        """A message of nbytes bytes over the links `uses` (link -> how many equal flows it stands for there)."""
        shared = {link: weight for link, weight in (uses or {}).items() if link in self.capacities}
        if not shared:  # nobody to share with: a time known now
            return self.work(latency + nbytes / limit, after=after, stream=stream, label=label, owners=owners)
        task = Task(label, latency, nbytes, limit, shared, frozenset(owners))
        return self._add(task, after, stream)

    def needs(self, task: int, *others: int) -> None:
        """`task` does not start before `others` are over; they may have been added later."""
        for other in others:
            self.tasks[other].then.append(task)
            self.tasks[task].waits_for += 1

    def _add(self, task: Task, after: Iterable[int], stream: Hashable) -> int:
        number = len(self.tasks)
        self.tasks.append(task)
        self.needs(number, *after)
        if stream is not None:
            if stream in self._last:
                self.needs(number, self._last[stream])
            self._last[stream] = number
        return number

    def run(self, *, dead: Iterable = (), dies_at: float = INFINITE) -> float:
        """Play all tasks, once; returns when the last that can end has ended, 0 where none can.

        dead: owners that stop at dies_at. What needs them and is not over by then never ends, and neither does what
        waits for it: such tasks keep end = inf. RuntimeError where tasks wait for each other in a circle.
        """
        for number, task in enumerate(self.tasks):
            if not task.waits_for:
                self._begin(number, 0.0)
        while self._heap:
            now = self._heap[0][0]
            if not self._dead and now > dies_at:
                self._bury(frozenset(dead), dies_at)
                dies_at = INFINITE
                continue
            self._share(self._events_until(now * (1 + _SAME)), now)
        ended = [task.end for task in self.tasks if task.end < INFINITE]
        if len(ended) < len(self.tasks) and not self._dead:
            stuck = next(task for task in self.tasks if task.end == INFINITE)
            raise RuntimeError(f"{len(self.tasks) - len(ended)} tasks wait for each other, {stuck.label} among them")
        return max(ended, default=0.0)

    def _begin(self, number: int, now: float) -> None:
        task = self.tasks[number]
        if not (self._dead and self._dead & task.owners):
            task.start = now
            heapq.heappush(self._heap, (now + task.seconds, number, -1))

    def _events_until(self, moment: float) -> set[Hashable]:
        """Handle all events up to this moment; returns the links whose flows have changed."""
        changed: set[Hashable] = set()
        while self._heap and self._heap[0][0] <= moment:
            now, number, version = heapq.heappop(self._heap)
            task = self.tasks[number]
            if self._dead and self._dead & task.owners:
                continue
            if version == -1 and task.nbytes:
                self._moving[number] = _Moving(task.nbytes, now)
                for link, weight in task.uses.items():
                    self._on[link].add(number)
                    self._wanted[link] += weight * task.limit
                changed.update(task.uses)
            elif version == -1:
                self._finish(number, now)
            elif number in self._moving and version == self._moving[number].version:
                changed |= self._leave(number)
                self._finish(number, now)
        return changed

    def _finish(self, number: int, now: float) -> None:
        task = self.tasks[number]
        task.end = now
        for follower in task.then:
            self.tasks[follower].waits_for -= 1
            if not self.tasks[follower].waits_for:
                self._begin(follower, now)

    def _leave(self, number: int) -> set[Hashable]:
        del self._moving[number]
        task = self.tasks[number]
        for link, weight in task.uses.items():
            self._on[link].discard(number)
            # Infinite limits cannot be subtracted again; an empty link wants nothing, whatever rounding left.
            self._wanted[link] = self._wanted[link] - weight * task.limit if self._on[link] else 0.0
            if math.isnan(self._wanted[link]):
                self._wanted[link] = INFINITE
        return set(task.uses)

    def _bury(self, dead: frozenset, now: float) -> None:
        self._dead = dead
        gone = [number for number in self._moving if dead & self.tasks[number].owners]
        self._share({link for number in gone for link in self._leave(number)}, now)

    def _share(self, changed: set[Hashable], now: float) -> None:
        """New rates for all flows that a change on these links can reach."""
        if not changed:
            return
        flows = {number: self.tasks[number] for number in self._reached(changed)}
        if any(self._can_be_full(link) for flow in flows.values() for link in flow.uses):
            rates = fair_rates(flows, self.capacities)
        else:
            rates = {number: flow.limit for number, flow in flows.items()}
        for number, rate in rates.items():
            moving = self._moving[number]
            if abs(rate - moving.rate) > _SAME * rate:
                moving.left -= moving.rate * (now - moving.at)
                moving.at, moving.rate, moving.version = now, rate, moving.version + 1
                heapq.heappush(self._heap, (now + max(moving.left, 0.0) / rate, number, moving.version))

    def _reached(self, links: set[Hashable]) -> set[int]:
        flows: set[int] = set()
        seen, waiting = set(links), list(links)
        while waiting:
            for number in self._on[waiting.pop()] - flows:
                flows.add(number)
                full = {link for link in self.tasks[number].uses if link not in seen and self._can_be_full(link)}
                seen |= full
                waiting += full
        return flows

    def _can_be_full(self, link: Hashable) -> bool:
        return self._wanted[link] > self.capacities[link] * (1 + _SAME)


def fair_rates(flows: Mapping[int, Task], capacities: Mapping[Hashable, float]) -> dict[int, float]:
    """The max-min fair rate of each flow: no rate can grow without taking from one that is not larger.

    All rates grow together; a flow stops at its limit, or when a link that it uses is full. Only `limit` and `uses`
    of the flows are looked at.

    >>> slow, light, heavy = Task((), 0, 1, 4.0, {"a": 1}), Task((), 0, 1, uses={"a": 1}), Task((), 0, 1, uses={"a": 2})
    >>> flows = {0: slow, 1: light, 2: heavy}
    >>> fair_rates(flows, {"a": 16.0})
    {0: 4.0, 1: 4.0, 2: 4.0}
    >>> fair_rates(flows, {"a": 20.0})
    {0: 4.0, 1: 5.333333333333333, 2: 5.333333333333333}
    """
    left = {link: capacities[link] for flow in flows.values() for link in flow.uses}
    load = dict.fromkeys(left, 0.0)
    for flow in flows.values():
        for link, weight in flow.uses.items():
            load[link] += weight
    rates: dict[int, float] = {}
    open_flows = dict(flows)
    while open_flows:
        level = min(left[link] / load[link] for link in left if load[link] > _SAME)
        level = min(level, min(flow.limit for flow in open_flows.values()))
        edge = level * (1 + _SAME)
        full = {link for link in left if load[link] > _SAME and left[link] / load[link] <= edge}
        stopped = [n for n, flow in open_flows.items() if flow.limit <= edge or not full.isdisjoint(flow.uses)]
        for number in stopped:
            rates[number] = level
            for link, weight in open_flows.pop(number).uses.items():
                left[link] = max(left[link] - weight * level, 0.0)
                load[link] -= weight
    return {number: rates[number] for number in flows}
