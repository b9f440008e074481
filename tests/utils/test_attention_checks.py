"""What `utils.checks.attention` sees: operators, FLOPs, transfers that run while products are computed, rings."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from utils import launch
from utils.checks import attention
from utils.checks.attention import Watched
from utils.checks.failed import CheckFailed


def test_products_are_counted_and_finished_attention_is_seen():
    q = torch.zeros(1, 2, 4, 3, requires_grad=True)
    with Watched() as watched:
        (q @ q.transpose(-1, -2)).sum().backward()
    assert [flops for _, flops in watched.products] == [2 * 2 * 4 * 4 * 3] * 3 and watched.flops_from(1) == 2 * 192
    attention.by_hand(sorted(watched.operators), "mine")
    with Watched() as watched:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with pytest.raises(CheckFailed, match=r"mine called torch's finished attention \(_scaled_dot_product"):
        attention.by_hand(sorted(watched.operators), "mine")


def test_too_much_work_is_told_with_its_likeliest_cause():
    causes = {"masked tiles are computed too": 80.0, "computed twice": 200.0}
    attention.work(44, 40, "forward", causes, slack=1.1)
    with pytest.raises(CheckFailed, match=r"82 FLOPs where 40 are enough \(2.05 times\): masked tiles"):
        attention.work(82, 40, "forward", causes)
    with pytest.raises(CheckFailed, match=r"\(3.25 times\)\.$"):
        attention.work(130, 40, "forward", causes)


def ring(early: bool, step: int, product: bool = True):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = torch.ones(64), torch.empty(64)
    with Watched() as watched:
        dist.barrier()
        if not early and product:
            _ = torch.ones(8, 8) @ torch.ones(8, 8)
        works = [dist.isend(x, (rank + step) % ranks), dist.irecv(y, (rank - step) % ranks)]
        if early and product:
            _ = torch.ones(8, 8) @ torch.ones(8, 8)
        for work in works:
            work.wait()
        dist.barrier()
    return watched.notes()


def test_a_transfer_that_is_open_during_a_product_counts():
    run = launch(ring, True, 1, ranks=3)
    for rank in range(3):
        attention.overlapped(run.trace, rank, run.values[rank], [256], "ring")
        with pytest.raises(CheckFailed, match="of 257 bytes that the next rounds need, 256 travelled"):
            attention.overlapped(run.trace, rank, run.values[rank], [257], "ring")
    run = launch(ring, False, 1, ranks=3)
    with pytest.raises(CheckFailed, match="forward, rank 0: of 256 bytes that the next rounds need, 0 travelled"):
        attention.overlapped(run.trace, 0, run.values[0], [256], "ring")


def test_a_ring_goes_one_way_and_uses_no_collective():
    for step in (1, -1):
        attention.around_the_ring(launch(ring, True, step, False, ranks=3).trace, "ring")
    attention.around_the_ring(launch(lambda: None, ranks=1).trace, "ring")
    with pytest.raises(CheckFailed, match="rank 0 sent to 2; in a ring"):
        attention.around_the_ring(launch(ring, True, 2, False, ranks=4).trace, "ring")
    with pytest.raises(CheckFailed, match=r"rank \d called all_reduce"):
        attention.around_the_ring(launch(lambda: dist.all_reduce(torch.ones(3)), ranks=3).trace, "ring")
    with pytest.raises(CheckFailed, match="sent to nobody"):
        attention.around_the_ring(launch(lambda: None, ranks=2).trace, "ring")


def test_passes_are_what_stands_between_barriers():
    trace = launch(ring, True, 1, ranks=2).trace
    assert [[event.op for event in part] for part in attention.passes(trace, 0)] == [["send", "recv"]]
