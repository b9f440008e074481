"""Who comes when and hands in what: drawn once from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.hub_load.answers import WRONG


@dataclass(frozen=True)
class Plan:
    """One student: seconds after the start until they log in, and the kind of work of each hand-in in turn.

    after_kill: their first hand-in waits until the hub has been killed and nothing answers.
    """

    name: str
    arrives_s: float
    work: tuple[str, ...]
    after_kill: bool = False


def plan(students: int, spread_s: float, seed: int, kill: bool) -> list[Plan]:
    """A class of three or more, by arrival: most right, a fifth wrong, a sixth blank, at least one each.

    The first to come hands in twice, blank and then right. The second submits while the hub is down, if it is killed.

    >>> [one.work for one in plan(3, 10, 0, kill=True)]
    [('blank', 'right'), ('mean_over_ranks',), ('blank',)]
    """
    chance = random.Random(seed)
    wrong, blank = max(1, students // 5), max(1, students // 6)
    others = [(WRONG[i % len(WRONG)],) for i in range(1, wrong)] + [("blank",)] * blank
    others += [("right",)] * (students - 2 - len(others))
    chance.shuffle(others)
    work = [("blank", "right"), (WRONG[0],), *others]
    arrivals = sorted(chance.uniform(0, spread_s) for _ in range(students))
    return [
        Plan(f"s{number:03d}", arrives, kinds, after_kill=kill and number == 2)
        for number, (arrives, kinds) in enumerate(zip(arrivals, work, strict=True), start=1)
    ]
