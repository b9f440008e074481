"""Messages of tensors that gloo cannot reach travel through host memory: the copies, tried with tensors it can."""

from __future__ import annotations

import torch
import torch.distributed as dist

from utils import launch


def exchange(staged: bool) -> list[float]:
    """Each rank sends its tensor to the right by isend and receives from the left."""
    from utils.trace.group import TracedGroup

    TracedGroup.staged = lambda self, tensor: staged  # type: ignore[method-assign]
    r, p = dist.get_rank(), dist.get_world_size()
    x, got = torch.full((3,), float(r)), torch.full((3,), -1.0)
    send = dist.isend(x, (r + 1) % p)
    recv = dist.irecv(got, (r - 1) % p)
    x.fill_(-7.0) if staged else None  # a staged message was copied when it was issued
    recv.wait()
    send.wait()
    return got.tolist()


def test_staged_messages_arrive_as_others_do() -> None:
    for staged in (False, True):
        run = launch(exchange, staged, ranks=3)
        assert run.values == [[2.0] * 3, [0.0] * 3, [1.0] * 3]
        assert [run.trace.bytes_sent(r) for r in range(3)] == [12] * 3
