"""Pipeline schedules as data, and how they play out without a single process.

A schedule is one list of actions for each rank; an action is (op, stage, micro_batch) with op "F" (forward) or
"B" (backward). A rank works through its list in order. F of a stage needs F of the stage before it, B needs F of
the same stage and B of the stage after it, each of the same micro-batch. Stage s is on rank s mod p. Known ones:
GPipe (Huang et al. 2019, arXiv 1811.06965), 1F1B (PipeDream-Flush, Narayanan et al. 2021, arXiv 2006.09503),
interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). Left out: the time of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Action = tuple[str, int, int]
Schedule = list[list[Action]]
Seconds = float | Sequence[float]


@dataclass(frozen=True)
class Span:
    """One action of one rank and when it ran, in seconds or in the unit of the costs."""

    rank: int
    op: str
    stage: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A schedule played through: its spans, and for each rank that got stuck the action it waits to begin.

    >>> line = play([read_actions("0F0 0B0"), read_actions("1F0 1B0")])     # F costs 1, B costs 2
    >>> line.seconds, line.busy(0), line.bubble, line.overhead
    (6, 3, 0.5, 1.0)
    """

    ranks: int
    spans: list[Span]
    stuck: dict[int, Action] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From the start of the first action to the end of the last; 0 without one."""
        if not self.spans:
            return 0.0
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)

    def busy(self, rank: int) -> float:
        """The time for which a rank works."""
        return sum(span.end - span.start for span in self.spans if span.rank == rank)

    @property
    def bubble(self) -> float:
        """The idle share of the total, over all ranks: (p-1)/(m+p-1) for equal stages under GPipe and 1F1B."""
        work = sum(self.busy(rank) for rank in range(self.ranks))
        return 1 - work / (self.ranks * self.seconds) if self.seconds else 0.0

    @property
    def overhead(self) -> float:
        """The idle time over the working time: (p-1)/m where `bubble` is (p-1)/(m+p-1)."""
        return self.bubble / (1 - self.bubble)


def action_text(action: Action) -> str:
    """An action in torch's spelling, stage first.

    >>> action_text(("F", 2, 0))
    '2F0'
    """
    op, stage, micro_batch = action
    return f"{stage}{op}{micro_batch}"


def read_actions(text: str) -> list[Action]:
    """Actions from torch's spelling.

    >>> read_actions("0F0 0F1 0B0")
    [('F', 0, 0), ('F', 0, 1), ('B', 0, 0)]
    """
    actions = []
    for word in text.split():
        op = "F" if "F" in word else "B"
        stage, _, micro_batch = word.partition(op)
        actions.append((op, int(stage), int(micro_batch)))
    return actions


def needs(action: Action, stages: int) -> list[Action]:
    """The actions that must be over before this one, where there are `stages` stages.

    >>> needs(("B", 0, 3), stages=2)
    [('F', 0, 3), ('B', 1, 3)]
    """
    op, stage, micro_batch = action
    if op == "F":
        return [("F", stage - 1, micro_batch)] if stage else []
    after = [("B", stage + 1, micro_batch)] if stage + 1 < stages else []
    return [("F", stage, micro_batch), *after]


def play(schedule: Sequence[Sequence[Action]], forward: Seconds = 1, backward: Seconds = 2) -> Timeline:
    """Work through a schedule: every action begins as soon as its rank is free and what it needs is there.

    forward, backward: the cost of one micro-batch in a stage; a number, or one for each stage. An action whose
    needs never come leaves its rank in `stuck`.

    Worked example, two stages and one micro-batch, F costs 1 and B costs 2:

    >>> [(span.rank, span.op, span.start, span.end) for span in play([[("F", 0, 0), ("B", 0, 0)],
    ...                                                               [("F", 1, 0), ("B", 1, 0)]]).spans]
    [(0, 'F', 0, 1), (1, 'F', 1, 2), (1, 'B', 2, 4), (0, 'B', 4, 6)]
    """
    stages = 1 + max((action[1] for actions in schedule for action in actions), default=-1)
    ends: dict[Action, float] = {}
    free, at = [0] * len(schedule), [0] * len(schedule)
    spans: list[Span] = []
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(schedule):
            while at[rank] < len(actions) and all(need in ends for need in needs(actions[at[rank]], stages)):
                op, stage, micro_batch = action = actions[at[rank]]
                start = max([free[rank], *(ends[need] for need in needs(action, stages))])
                free[rank] = ends[action] = start + _cost(forward if op == "F" else backward, stage)
                spans.append(Span(rank, op, stage, micro_batch, start, free[rank]))
                at[rank] += 1
                moved = True
    stuck = {rank: actions[at[rank]] for rank, actions in enumerate(schedule) if at[rank] < len(actions)}
    return Timeline(len(schedule), spans, stuck)


def _cost(seconds: Seconds, stage: int) -> float:
    return seconds[stage] if isinstance(seconds, Sequence) else seconds


def most_in_flight(actions: Sequence[Action]) -> int:
    """The most micro-batches (of any of its stages) for which a rank has run F and not yet B.

    >>> most_in_flight(read_actions("0F0 0F1 0B0 0F2 0B1 0B2"))
    2
    """
    now = most = 0
    for op, _, _ in actions:
        now += 1 if op == "F" else -1
        most = max(most, now)
    return most
