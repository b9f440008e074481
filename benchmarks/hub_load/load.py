"""A whole run: a class of simulated students, its hub killed in the middle, all collected, graded and counted."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from benchmarks.hub_load.answers import works
from benchmarks.hub_load.counting import Count, HandedIn, count
from benchmarks.hub_load.klass import LoadClass
from benchmarks.hub_load.plan import Plan
from benchmarks.hub_load.student import STEPS, Board, Student

GRADE_S = 120.0  # at most, for each submission


@dataclass(frozen=True)
class Asked:
    """The size of a run; kill_at is the share of students who have submitted when the hub is killed, None for never."""

    students: int = 30
    spread_s: float = 120.0
    kill_at: float | None = 0.5
    seed: int = 0


class Load:
    """Runs students against a class that is up. `board` and `students` tell what happened.

    Example:
        with LoadClass([one.name for one in plans]) as klass:
            load = Load(klass, plans, Asked(3))
            load.run()
            load.figures()["lost"]
    """

    def __init__(self, klass: LoadClass, plans: Sequence[Plan], asked: Asked) -> None:
        self.klass, self.asked = klass, asked
        self.board = Board()
        self.students = [
            Student(one, klass.url, klass.passwords[one.name], klass.layout.spec.course, self.board) for one in plans
        ]
        self.back_s = self.work_s = self.grade_s = self.mib = 0.0
        self.hub_was_killed = False

    def run(self) -> None:
        """Students come, work and hand in; then all is collected and graded."""
        self.klass.release()
        start = time.monotonic()
        self._students()
        self.work_s = time.monotonic() - start
        self.mib = statistics.median(self.klass.mib_of_server(one.plan.name) for one in self.students)
        tell("Collecting and grading.")
        self.klass.collect()
        self.grade_s = self.klass.grade(GRADE_S * len(self.students))

    def _students(self) -> None:
        steps = sum(2 + 2 * len(one.plan.work) for one in self.students)
        with tqdm(total=steps, unit="step", desc=f"{len(self.students)} students") as bar:
            self.board.step = bar.update
            try:
                for one in self.students:
                    one.start()
                if self.asked.kill_at is not None:
                    self._kill(bar, self.asked.kill_at)
                while any(one.is_alive() for one in self.students):
                    time.sleep(0.2)
            finally:
                self.board.stop.set()
        for one in self.students:
            if one.problem:
                tell(f"{one.plan.name}: {one.problem}")

    def _kill(self, bar: tqdm, share: float) -> None:
        """Kill the hub when enough have submitted and the one who submits meanwhile is ready; wait for its return."""
        enough = min(int(share * len(self.students)), len(self.students) - 1)
        (meanwhile,) = [one for one in self.students if one.plan.after_kill]
        while self.board.submitted < enough or not self.board.waiting.is_set():
            left = [one for one in self.students if one.is_alive() and not one.plan.after_kill]
            if not meanwhile.is_alive() or (not left and self.board.submitted < enough):
                return  # somebody failed: there will not be enough
            time.sleep(0.1)
        bar.write(f"{self.board.submitted} have submitted: the hub is killed.", file=sys.stderr)
        start = time.monotonic()
        self.klass.kill_hub()
        self.hub_was_killed = True
        self.board.down.set()
        self.klass.wait_until_back()
        self.back_s = time.monotonic() - start
        bar.write(f"The hub is back after {self.back_s:.0f} s.", file=sys.stderr)

    def known(self) -> dict[str, HandedIn]:
        """What each student knows of their hand-ins."""
        return {
            one.plan.name: HandedIn(tuple(one.handed_in), works()[one.plan.work[len(one.handed_in) - 1]].points)
            for one in self.students
        }

    def count(self) -> Count:
        """Hold the class's folder to what the students know."""
        return count(self.klass.layout, self.known())

    def figures(self) -> dict[str, float]:
        """What `benchmarks/hub.py` prints."""
        counted = self.count()
        for sentence in counted.sentences():
            tell(sentence)
        found: dict[str, float] = {
            "students": len(self.students), "submitted": counted.submitted, "lost": len(counted.lost),
            "doubled": len(counted.doubled), "misgraded": len(counted.misgraded),
            "restarted": sum(len(one.servers) > 1 for one in self.students),
            "killed": int(self.hub_was_killed), "back_s": round(self.back_s, 1),
            "refused_while_down": sum(one.refused_while_down for one in self.students),
            "turned_away": sum(one.browser.turned_away for one in self.students),
        }  # fmt: skip
        for step in STEPS:
            times = [seconds for one in self.students for seconds in one.seconds[step]]
            found[f"{step}_s"] = round(statistics.median(times), 2) if times else 0.0
            found[f"{step}_p95_s"] = round(p95(times), 2) if times else 0.0
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        found |= {"mib_per_student": round(self.mib, 1), "work_s": round(self.work_s, 1)}
        return found | {"grade_s": round(self.grade_s, 1), "cores": cores}


def p95(times: Sequence[float]) -> float:
    """The time that one in twenty took longer than.

    >>> p95([float(i) for i in range(1, 101)])
    95.0
    """
    ordered = sorted(times)
    return ordered[max(0, -(-95 * len(ordered) // 100) - 1)]


def tell(text: str) -> None:
    """A line for whoever watches; standard output has the figures alone."""
    print(text, file=sys.stderr, flush=True)
