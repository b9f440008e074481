"""What the test cells of labs call: `from utils import check`.

Every function returns nothing (or plain data) when all is well, and raises `CheckFailed` with one sentence
for the student when not. They hold raw data that ranks brought back to an oracle; none runs student code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from utils.checks.agree import agree
from utils.checks.answers import (
    answer,
    answers_agree,
    between,
    has_letter,
    has_list_of_ints,
    has_number,
    number,
    numbers,
)
from utils.checks.buckets import all_reduce_traffic, broadcast_traffic, collective_sizes, overlap
from utils.checks.experts import expert_traffic, sent_at_most, went_through
from utils.checks.failed import CheckFailed
from utils.checks.layers import copies_add_up, step_traffic
from utils.checks.outcomes import count, outcome
from utils.checks.traffic import by_messages, no_collectives, parts, ring_traffic, rounds_needed, tree_rounds
from utils.checks.values import ranks_hold, unchanged
from utils.ranks.api import launch_here

__all__ = [
    "CheckFailed", "agree", "all_reduce_traffic", "answer", "answers_agree", "between", "broadcast_traffic",
    "by_messages", "collective_sizes", "copies_add_up", "count", "expert_traffic", "has_letter", "has_list_of_ints",
    "has_number", "no_collectives", "number", "numbers", "outcome", "overlap", "parts", "ranks_hold", "reference",
    "ring_traffic", "rounds_needed", "sent_at_most", "step_traffic", "tree_rounds", "unchanged", "went_through",
]  # fmt: skip


def reference(fn: Callable[..., Any], *args: Any, ranks: int | None = 4, **options: Any) -> Any:
    """Run an oracle, e.g. torch's own collective, on ranks that hold no student code; called as `launch` is.

    >>> reference(torch_all_reduce, 3, ranks=2).values
    [tensor([19., 44., 69.]), tensor([19., 44., 69.])]
    """
    return launch_here(fn, *args, ranks=ranks, show=False, **options)
