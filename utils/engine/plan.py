"""What rank 0 tells the others of a step: the tokens, their positions and block tables; and who draws by chance.

One broadcast of whole numbers a step; a second one where a step is large. Left out: anything about text or users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from utils.engine.attention import Row
from utils.engine.parallel import Group, place
from utils.serving import Request

INLINE = 1024  # numbers in the first broadcast of a step


@dataclass(frozen=True)
class Plan:
    """One step. tokens, positions: [T]; rows: (block table, start, count) a request; drawn: which rows need all logits.

    >>> plan = Plan.of([(Request(0, [7, 8, 9], max_new=1, blocks=[4]), 3)], block_size=4)
    >>> plan.tokens, plan.rows, Plan.read(plan.numbers()) == plan
    ([7, 8, 9], [([4], 0, 3)], True)
    """

    tokens: list[int]
    positions: list[int]
    rows: list[Row]
    drawn: list[int]

    @classmethod
    def of(cls, batch: Sequence[tuple[Request, int]], block_size: int) -> Plan:
        """The plan of a scheduler's batch."""
        tokens: list[int] = []
        positions: list[int] = []
        rows: list[Row] = []
        for request, count in batch:
            start, prompt = request.computed, len(request.prompt)
            if start >= prompt:
                tokens += request.output[start - prompt : start - prompt + count]
            else:
                tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
            rows.append((request.blocks[: -(-(start + count) // block_size)], start, count))
        drawn = [number for number, (request, _) in enumerate(batch) if getattr(request, "temperature", 0)]
        return cls(tokens, positions, rows, drawn)

    def numbers(self) -> list[int]:
        """All of it in one row of whole numbers."""
        tables = [[len(table), start, count, *table] for table, start, count in self.rows]
        flat = [number for table in tables for number in table]
        return [len(self.tokens), len(self.rows), len(self.drawn), *self.tokens, *self.positions, *self.drawn, *flat]

    @classmethod
    def read(cls, numbers: list[int]) -> Plan:
        """The plan that `numbers` wrote."""
        tokens, rows, drawn = numbers[:3]
        at = 3 + 2 * tokens + drawn
        found: list[Row] = []
        for _ in range(rows):
            long, start, count = numbers[at : at + 3]
            found.append((numbers[at + 3 : at + 3 + long], start, count))
            at += 3 + long
        return cls(
            numbers[3 : 3 + tokens], numbers[3 + tokens : 3 + 2 * tokens],
            found, numbers[3 + 2 * tokens : 3 + 2 * tokens + drawn],
        )  # fmt: skip


def tell(plan: Plan | None, group: Group = None) -> None:
    """On rank 0: every rank gets this plan from `hear`; None says that no further one comes."""
    if place(group)[1] == 1:
        return
    numbers = plan.numbers() if plan else []
    first, rest = numbers[: INLINE - 1], numbers[INLINE - 1 :]
    head = torch.tensor([len(numbers), *first, *[0] * (INLINE - 1 - len(first))])
    dist.broadcast(head, group=group, group_src=0)
    if rest:
        dist.broadcast(torch.tensor(rest), group=group, group_src=0)


def hear(group: Group = None) -> Plan | None:
    """On the other ranks: the next plan of rank 0, None when there will be none."""
    head = torch.empty(INLINE, dtype=torch.long)
    dist.broadcast(head, group=group, group_src=0)
    length, *first = head.tolist()
    if length == 0:
        return None
    numbers = first[:length]
    if length > len(numbers):
        rest = torch.empty(length - len(numbers), dtype=torch.long)
        dist.broadcast(rest, group=group, group_src=0)
        numbers += rest.tolist()
    return Plan.read(numbers)
