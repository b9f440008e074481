"""A layer of experts on several ranks: which expert saw which token, and who sent how many rows to whom.

Bounds: a token of H numbers travels once for each chosen expert on another rank, and its result once back (Lepikhin
et al. 2020, arXiv 2006.16668, section 3.2). One row for all experts of a token on the same rank is as good. Left out:
time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of, short

SLOT_BYTES = 32  # what may travel beside a row: its weight, its expert, and their gradients
NUMBER_BYTES = 8
_NO_DATA = ("barrier", "group", "new_group")


def went_through(got: object, want: torch.Tensor, what: str, *, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Each token went through its experts, with its weights.

    Args:
        got: [T, E], from experts whose output is their own unit vector: entry [t, e] is the weight that expert e's
            result has in token t.
        want: the same from the router; 0 where an expert was not chosen.

    >>> went_through(torch.tensor([[0.6, 0.4, 0.0]]), torch.tensor([[0.6, 0.0, 0.4]]), "moe_layer")
    Traceback (most recent call last):
    CheckFailed: moe_layer: token 0 went through experts 0 and 1; the router chose experts 0 and 2.
    """
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        seen = f"shape {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
        raise CheckFailed(f"{what}: the result has {seen}, wanted {tuple(want.shape)}.")
    got, want = got.double(), want.double()
    wrong = (~torch.isclose(got, want, rtol=rtol, atol=atol)).any(1).nonzero().flatten().tolist()
    if not wrong:
        return
    token = wrong[0]
    swapped = _other_token(got[token], want, token, rtol, atol)
    if swapped is not None:
        raise CheckFailed(
            f"{what}: token {token} has the result of token {swapped}: the rows were not put back in their order."
        )
    seen, chosen = _used(got[token], atol), _used(want[token], atol)
    if seen != chosen:
        raise CheckFailed(f"{what}: token {token} went through {_experts(seen)}; the router chose {_experts(chosen)}.")
    have, need = (listed(short(round(float(row[e]), 4)) for e in chosen) for row in (got[token], want[token]))
    raise CheckFailed(f"{what}: token {token} went through the right experts ({listed(chosen)}) with the weights "
                      f"{have}, wanted {need}.")  # fmt: skip


def _used(row: torch.Tensor, atol: float) -> list[int]:
    return (~(row.abs() <= max(atol, 1e-6))).nonzero().flatten().tolist()


def _experts(experts: list[int]) -> str:
    if not experts:
        return "no expert"
    return f"expert {experts[0]}" if len(experts) == 1 else f"experts {listed(experts)}"


def _other_token(row: torch.Tensor, want: torch.Tensor, own: int, rtol: float, atol: float) -> int | None:
    """Another token whose wanted row this is (weights are random: no two tokens share theirs)."""
    for token in range(len(want)):
        if token != own and bool(want[token].any()) and torch.allclose(row, want[token], rtol=rtol, atol=atol):
            return token
    return None


ORDERS = {
    "choice": lambda rank, token, choice: (choice, rank, token),
    "token": lambda rank, token, choice: (rank, token, choice),
    "late": lambda rank, token, choice: (choice, -rank, -token),
    "rank": lambda rank, token, choice: (rank, choice, token),
}


def queued(ids: Sequence[torch.Tensor], capacity: int, by: str = "choice") -> list[torch.Tensor]:
    """What is left of each rank's choices when an expert takes `capacity` of them, one queue for all ranks.

    Args:
        ids: by rank, [T, k] experts.
        capacity: of each expert.
        by: the order of the queue. "choice": all first choices before all second ones, within them by rank and token
            (Lepikhin et al. 2020, algorithm 1). Others, for messages: "token", "rank" (one after the other), "late".

    Returns: by rank, a tensor like its ids with -1 where a choice was dropped.

    >>> queued([torch.tensor([[0, 1]]), torch.tensor([[0, 1], [0, 1]])], 2)
    [tensor([[0, 1]]), tensor([[ 0,  1],
            [-1, -1]])]
    """
    kept, room = [torch.full_like(own, -1) for own in ids], {}
    slots = [(r, t, j) for r, own in enumerate(ids) for t in range(len(own)) for j in range(own.shape[1])]
    for r, t, j in sorted(slots, key=lambda slot: ORDERS[by](*slot)):
        expert = int(ids[r][t, j])
        room[expert] = room.get(expert, capacity) - 1
        if room[expert] >= 0:
            kept[r][t, j] = expert
    return kept


def sent_at_most(trace, parts: Sequence[tuple[str, float, str]]) -> None:
    """What each rank sent in each part of a probe is no more than its limit.

    Args:
        trace: of a probe that calls dist.barrier() before, between and after its parts.
        parts: for each part its name, the most bytes that a rank may send, and what these are, in words.

    >>> sent_at_most(run.trace, [("z_loss", 32, "a sum and a count")])
    Traceback (most recent call last):
    CheckFailed: z_loss: rank 0 sent 96 bytes (all_gather of [2, 6]); 32 are enough: a sum and a count.
    """
    for rank in range(trace.ranks):
        pieces = between_barriers(trace.of(rank))
        if len(pieces) != len(parts):
            raise CheckFailed(
                f"rank {rank} made {len(pieces) + 1} barriers, {len(parts) + 1} are the test's own: none is needed "
                "(or it failed on the way)."
            )
        for events, (what, limit, enough) in zip(pieces, parts, strict=True):
            sent = sum(event.sent for event in events if event.issued)
            if sent > limit:
                used = listed(f"{event.op} of {list(event.shape)}" for event in events if event.sent)
                raise CheckFailed(f"{what}: rank {rank} sent {sent} bytes ({used}); {limit:g} are enough: {enough}.")


def between_barriers(events) -> list[list]:
    """The events after the first barrier, cut at the others; what follows the last is left out."""
    parts: list[list] = []
    for event in events:
        if event.op == "barrier":
            parts.append([])
        elif parts and event.op not in _NO_DATA:
            parts[-1].append(event)
    return parts[:-1]


def expert_traffic(
    trace, rows: Sequence[Sequence[int]], fewest: Sequence[Sequence[int]], row_bytes: int, experts: int, what: str
) -> None:
    """A forward and a backward pass of a layer of experts sent each row to its expert's rank and back, no more.

    Args:
        trace: of a probe that calls dist.barrier() before, between and after the two passes.
        rows: [p][p], rows[r][s] is how many choices of rank r's tokens are experts of rank s.
        fewest: [p][p], how many of rank r's tokens chose at least one expert of rank s.
        row_bytes: of one row: 4 H in float32.
        experts: E, for the counts that may be exchanged.

    >>> expert_traffic(run.trace, [[1, 4], [2, 3]], [[1, 3], [2, 2]], 256, 4, "moe_layer")
    Traceback (most recent call last):
    CheckFailed: moe_layer: in the forward pass rank 0 called all_gather of [6, 64] (1536 bytes): no row has to go ...
    """
    ranks = trace.ranks
    pieces = [between_barriers(trace.of(rank)) for rank in range(ranks)]
    if any(len(parts) != 2 for parts in pieces):
        raise CheckFailed(f"{what}: 3 barriers are the test's own, and a rank made more or fewer: none is needed.")
    counts = 4 * experts * NUMBER_BYTES * ranks  # a few numbers for each expert and rank
    for number, name in enumerate(("forward", "backward")):
        sent = [_to_each(pieces[rank][number], rank, ranks, counts, f"{what}: in the {name} pass") for rank in
                range(ranks)]  # fmt: skip
        for r in range(ranks):
            for s in range(ranks):
                if r != s:
                    _pair(sent[r][s], r, s, (rows, fewest), row_bytes, counts, f"{what}: in the {name} pass")


def _to_each(events, rank: int, ranks: int, counts: int, where: str) -> list[int]:
    """Bytes to each rank; only small collectives of another kind than all-to-all are let through."""
    out = [0] * ranks
    for event in events:
        if event.op == "all_to_all" and event.issued:
            size = getattr(torch, event.dtype).itemsize
            for peer, numel in zip(event.group.ranks, event.sizes()[0], strict=True):
                out[peer] += numel * size if peer != rank else 0
        elif event.op == "send" and event.issued:
            out[event.peer] += event.sent
        elif event.op != "recv" and event.sent > counts:
            raise CheckFailed(
                f"{where} rank {rank} called {event.op} of {list(event.shape)} ({event.sent} bytes): no row and no "
                "weight has to go to all ranks; each row goes to the rank of its expert."
            )
    return out


def _pair(sent: int, r: int, s: int, rows: tuple, row_bytes: int, counts: int, where: str) -> None:
    """What rank r sent to rank s: its own rows for s's experts, and the results of s's rows."""
    slots, fewest = (matrix[r][s] + matrix[s][r] for matrix in rows)
    most = slots * (row_bytes + SLOT_BYTES) + counts
    if sent > most:
        times = sent / (slots * row_bytes) if slots else 0
        hint = f", {times:.3g} times as many" if slots else ""
        raise CheckFailed(
            f"{where} rank {r} sent {sent} bytes to rank {s}{hint}: {number_of(rows[0][r][s], 'row')} for its experts "
            f"and {number_of(rows[0][s][r], 'result')} of {row_bytes} bytes are {slots * row_bytes}. Is anything "
            "padded, or sent twice?"
        )
    if sent < fewest * row_bytes:
        raise CheckFailed(
            f"{where} rank {r} sent {sent} bytes to rank {s}, where {number_of(fewest, 'row')} of {row_bytes} bytes "
            "must pass: they did not come by messages."
        )
