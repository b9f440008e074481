"""Attention in pieces: which operators ran, how many FLOPs, what travelled while products were computed.

`Watched` runs beside the answer, inside a probe; the other functions are verdicts on what it and the journal
(`utils.trace`) brought back. Moments are compared on one rank only, and by their order. Counted are matrix
products, 2mkn each, as `torch.utils.flop_counter` does. Left out: how long anything took.

Sources: Dao et al. 2022 (FlashAttention, arXiv 2205.14135); Liu et al. 2023 (ring attention, arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from utils.checks.failed import CheckFailed
from utils.checks.words import listed
from utils.trace.journal import CAPACITY, RECORD, RECORDS_AT, STRIDE
from utils.work import Work

FUSED = ("attention",)  # in the names of aten's finished attention kernels, and in no other name
START = 17  # the field of a journal's record with the moment at which the operation was issued


class Watched(Work):
    """Work that also notes when each matrix product began.

    Attributes:
        products: (moment in ns, FLOPs) for each product.

    >>> with Watched() as watched:
    ...     _ = torch.zeros(2, 3) @ torch.zeros(3, 4)
    >>> sorted(watched.operators), [flops for _, flops in watched.products]
    (['mm', 'zeros'], [48])
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[int, int]] = []

    def count(self, name: str, flops: int, moment: int) -> None:
        super().count(name, flops, moment)
        self.products.append((moment, flops))

    def flops_from(self, begin: int) -> int:
        """FLOPs of the products from number `begin` on."""
        return sum(flops for _, flops in self.products[begin:])

    def notes(self) -> dict[str, Any]:
        """What a probe returns: "ops", "products", and "anchor", which ties these moments to the journal's."""
        return {"ops": sorted(self.operators), "products": self.products, "anchor": _anchor()}


def _anchor() -> tuple[int, int] | None:
    """(sequence number, moment in ns) of what this rank journaled last; None where nothing is journaled."""
    group = dist.group.WORLD if dist.is_initialized() else None
    writer = getattr(getattr(group, "recorder", None), "writer", None)
    if writer is None or not writer.count:
        return None
    index = writer.count - 1
    return index, RECORD.unpack_from(writer.map, RECORDS_AT + (index % CAPACITY) * STRIDE)[START]


def by_hand(ops: Sequence[str], what: str) -> None:
    """No finished attention kernel ran.

    >>> by_hand(["bmm", "_scaled_dot_product_flash_attention_for_cpu"], "blockwise_forward")
    Traceback (most recent call last):
    CheckFailed: blockwise_forward called torch's finished attention (_scaled_dot_product_flash_attention_for_cpu); ...
    """
    finished = [name for name in ops if any(part in name for part in FUSED)]
    if finished:
        raise CheckFailed(
            f"{what} called torch's finished attention ({listed(finished)}); write it from products, maxima and sums."
        )


def work(got: int, need: int, what: str, causes: Mapping[str, float], *, slack: float = 1.0) -> None:
    """At most `slack` times `need` FLOPs; where it is more, the nearest of `causes` (sentence -> FLOPs) is told.

    >>> work(80, 45, "forward", {"masked tiles are computed too": 80})
    Traceback (most recent call last):
    CheckFailed: forward: its products took 80 FLOPs where 45 are enough (1.78 times): masked tiles are computed too.
    """
    if got <= slack * need:
        return
    near = {cause: abs(got / flops - 1) for cause, flops in causes.items() if flops > slack * need}
    best = min(near, key=near.get, default=None)
    cause = f": {best}" if best is not None and near[best] < 0.15 else ""
    raise CheckFailed(
        f"{what}: its products took {got} FLOPs where {need} are enough ({got / need:.3g} times){cause}."
    )


def passes(trace, rank: int) -> list[list]:
    """The events of a rank between its barriers: the forward pass, the backward pass, ...

    CheckFailed where the answer made barriers of its own, so that the passes cannot be told apart.
    """
    parts: list[list] = []
    for event in trace.of(rank):
        if event.op == "barrier":
            parts.append([])
        elif parts and event.op not in ("group", "new_group"):
            parts[-1].append(event)
    return parts[:-1]


def hidden_bytes(events: Sequence, products: Sequence[tuple[int, int]], offset: float) -> int:
    """Bytes received by receives that were open while a matrix product ran.

    offset: seconds to add to a product's moment to have it on the journal's clock.
    """
    moments = [moment / 1e9 + offset for moment, _ in products]
    total = 0
    for event in events:
        until = event.wait if event.wait is not None else event.end
        if event.received and until is not None and any(event.start < moment < until for moment in moments):
            total += event.received
    return total


def overlapped(trace, rank: int, notes: Mapping, need: Sequence[int], what: str) -> None:
    """In pass k at least `need[k]` bytes came in by receives that were open while products ran.

    notes: what `Watched.notes` gave on that rank.

    >>> overlapped(run.trace, 0, run.values[0], [4096, 4096], "ring_attention")
    Traceback (most recent call last):
    CheckFailed: ring_attention: forward, rank 0: of 4096 bytes that the next rounds need, 0 travelled while ...
    """
    if notes["anchor"] is None:
        raise CheckFailed(f"{what}: rank {rank} journaled nothing.")
    seq, moment = notes["anchor"]
    (event,) = [event for event in trace.of(rank) if event.seq == seq]
    offset = event.start - moment / 1e9
    for name, least, events in zip(("forward", "backward"), need, passes(trace, rank), strict=False):
        seen = hidden_bytes(events, notes["products"], offset)
        if seen < least:
            raise CheckFailed(
                f"{what}: {name}, rank {rank}: of {least} bytes that the next rounds need, {seen} travelled while "
                "products were computed. Start the next block's transfer, compute with the block that is there, "
                "and only then wait."
            )


def around_the_ring(trace, what: str) -> None:
    """Messages only, each rank to one neighbour, all the same way round."""
    ranks = trace.ranks
    for event in trace.events:
        if event.sent and event.op != "send":
            raise CheckFailed(
                f"{what}: rank {event.rank} called {event.call}; blocks travel by send and receive, one hop a round."
            )
    peers = [sorted(trace.peers(rank)) for rank in range(ranks)]
    if ranks == 1 or any(all(peers[r] == [(r + step) % ranks] for r in range(ranks)) for step in (1, -1)):
        return
    rank = max(range(ranks), key=lambda r: len(peers[r]))
    sent_to = listed(peers[rank]) if peers[rank] else "nobody"
    raise CheckFailed(
        f"{what}: rank {rank} sent to {sent_to}; in a ring each rank sends to one neighbour, all the same way round."
    )
