"""A layer that is split over ranks: gradients of copies, and what each pass of it sent.

Bounds on traffic: an all-reduce of n elements on p ranks sends about 2(p-1)/p n per rank, an all-gather or a
reduce-scatter (p-1)/p n (n counts the whole tensor), whatever carries it out (Shoeybi et al. 2019, arXiv
1909.08053, section 3; Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2). Left out: time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from utils.checks.agree import agree, close
from utils.checks.failed import CheckFailed
from utils.checks.words import number_of
from utils.trace.ops import all_reduce_bytes

Budget = Sequence[tuple[str, int]]
RTOL, ATOL = 1e-4, 1e-5  # of gradients


def copies_add_up(got: Sequence[object], want: torch.Tensor, what: str, suspects: Mapping[str, float] | None = None):
    """The gradients of a tensor that every rank holds whole: the dense one on each rank, or parts that add up to it.

    None counts as no part: a bias may be added by one rank only, and the other copies are then never used.

    >>> copies_add_up([torch.tensor([3.0]), None], torch.tensor([3.0]), "grad of bias")
    >>> copies_add_up([torch.tensor([3.0]), torch.tensor([3.0])], torch.tensor([3.0]), "grad of bias")
    """
    parts = [part for part in got if isinstance(part, torch.Tensor) and part.shape == want.shape]
    total = sum(parts, torch.zeros_like(want))
    if all(close(part, want, RTOL, ATOL) for part in got) or close(total, want, RTOL, ATOL):
        return
    for rank, part in enumerate(got):
        agree({"gradient": part}, {"gradient": want}, f"{what} (rank {rank})", suspects=suspects, rtol=RTOL, atol=ATOL)


def step_traffic(trace, steps: Sequence[tuple[str, Budget, Budget]], itemsize: int = 4) -> None:
    """Each pass of each step sent what it must and no more.

    Args:
        trace: of a probe that calls dist.barrier() before, between and after the two passes of each step.
        steps: for each step its name, and what its forward and its backward pass may send: pairs of
            "all_reduce", "all_gather" or "reduce_scatter" and the number of elements of the whole tensor. With
            a "?" behind its name it may be left out. The same bytes by other operations are as good.

    >>> step_traffic(run.trace, [("mlp", [("all_reduce", 48)], [("all_reduce", 48)])])
    Traceback (most recent call last):
    CheckFailed: mlp: rank 0 sent 384 bytes in the forward pass (all_reduce of [2, 3, 8], all_reduce of ...
    """
    for rank in range(trace.ranks):
        parts = _between_barriers(trace.of(rank))
        if len(parts) != 3 * len(steps) - 1:
            raise CheckFailed(
                f"rank {rank} made {len(parts) + 1} barriers, {3 * len(steps)} are the test's own: "
                "a layer needs none (or it failed on the way)."
            )
        for number, (what, forward, backward) in enumerate(steps):
            for offset, (name, budget) in enumerate((("forward", forward), ("backward", backward))):
                who = f"{what}: rank {rank}"
                _hold_to(parts[3 * number + offset], budget, rank, trace.ranks, itemsize, who, name)


def _between_barriers(events) -> list[list]:
    """The events after the first barrier, cut at the others; what follows the last is left out."""
    parts: list[list] = []
    for event in events:
        if event.op == "barrier":
            parts.append([])
        elif parts and event.op not in ("group", "new_group"):
            parts[-1].append(event)
    return parts[:-1]


def _hold_to(events, budget: Budget, rank: int, ranks: int, itemsize: int, who: str, name: str) -> None:
    """One pass of one rank: no more bytes out than the budget's, and at least what it needs in."""
    sent, received = (sum(getattr(event, way) for event in events if event.issued) for way in ("sent", "received"))
    limit = sum(_sent(op.rstrip("?"), numel, rank, ranks) for op, numel in budget) * itemsize
    least = sum(_needed(op, numel, ranks) for op, numel in budget if not op.endswith("?")) * itemsize
    slack = 2 * (ranks - 1) * len(budget) * itemsize  # chunks that are padded to equal length
    if sent > limit + slack:
        enough = " and ".join(f"{op.rstrip('?')} of {number_of(numel, 'element')}" for op, numel in budget) or "nothing"
        raise CheckFailed(
            f"{who} sent {sent} bytes in the {name} pass ({_listed(events)}); {limit} are enough: {enough}."
            f"{_hint(events, budget)}"
        )
    if received < least:
        raise CheckFailed(
            f"{who} received {received} bytes in the {name} pass; it needs {least} or more from the other ranks, "
            "or it cannot know the result."
        )


def _sent(op: str, numel: int, rank: int, ranks: int) -> int:
    if op == "all_reduce":
        return all_reduce_bytes(numel, ranks, rank, 1)[0]
    return -(-numel * (ranks - 1) // ranks)


def _needed(op: str, numel: int, ranks: int) -> int:
    """What a rank cannot do without, by any algorithm; a little less where pieces are uneven."""
    if ranks == 1:
        return 0
    return numel // ranks if op == "reduce_scatter" else numel * (ranks - 1) // ranks


def _listed(events) -> str:
    texts = [f"{event.op} of {list(event.shape)}" for event in events]
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


def _hint(events, budget: Budget) -> str:
    seen, allowed = [event.op for event in events], [op.rstrip("?") for op, _ in budget]
    if not allowed:
        return " Each rank can do this pass alone."
    if "all_gather" in seen and "all_gather" not in allowed:
        return " Nothing has to be gathered here."
    if "all_reduce" in seen and "all_reduce" not in allowed:
        return " An all-reduce is a reduce-scatter and an all-gather; only one of them is needed here."
    extra = seen.count("all_reduce") - allowed.count("all_reduce")
    return f" {number_of(extra, 'all-reduce')} too many?" if extra > 0 else ""
