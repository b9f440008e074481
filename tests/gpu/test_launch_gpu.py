"""Ranks on GPUs: nccl with one GPU a rank, GPUs shared under gloo, and CUDA never touched by the kernel or the server.

Run by `make test-gpu` on a machine with a GPU; what needs more GPUs than there are says so and is skipped.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from utils import BadLaunch, launch
from utils.ranks.devices import count_gpus

pytestmark = pytest.mark.gpu
GPUS = count_gpus(None)


def needs(gpus: int) -> None:
    if gpus > GPUS:
        pytest.skip(f"needs {gpus} GPUs, and there are {GPUS}")


def ring_and_reduce() -> dict:
    """What a lab does on its ranks: messages to a neighbour and a collective, on tensors made without a device."""
    r, p = dist.get_rank(), dist.get_world_size()
    x = torch.arange(6.0) + 10 * r
    got = torch.empty_like(x)
    if p > 1:
        work = dist.isend(x, (r + 1) % p)
        dist.recv(got, (r - 1) % p)
        work.wait()
    total = x.clone()
    dist.all_reduce(total)
    return {"got": got, "total": total, "device": str(x.device), "backend": dist.get_backend()}


def expected_total(p: int) -> list[float]:
    return [sum(e + 10.0 * r for r in range(p)) for e in range(6)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_nccl_has_one_gpu_a_rank(ranks: int) -> None:
    needs(ranks)
    run = launch(ring_and_reduce, ranks=ranks, timeout=120)
    for r, value in enumerate(run.values):
        assert value["backend"] == "nccl" and value["device"] == f"cuda:{r}"
        assert value["total"].tolist() == expected_total(ranks) and value["total"].device.type == "cpu"
        if ranks > 1:
            assert value["got"].tolist() == [e + 10.0 * ((r - 1) % ranks) for e in range(6)]
    assert run.trace.collectives(0) == ["all_reduce"]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_gpus_under_gloo(ranks: int) -> None:
    needs(1)
    if ranks <= GPUS:
        pytest.skip(f"{GPUS} GPUs are enough for {ranks} ranks of nccl")
    run = launch(ring_and_reduce, ranks=ranks, device="cuda", timeout=120)
    for r, value in enumerate(run.values):
        assert value["backend"] == "gloo" and value["device"] == f"cuda:{r % GPUS}"
        assert value["total"].tolist() == expected_total(ranks)
        assert value["got"].tolist() == [e + 10.0 * ((r - 1) % ranks) for e in range(6)]


def test_more_ranks_than_gpus_fall_back_to_the_cpu_or_are_refused() -> None:
    needs(1)
    run = launch(ring_and_reduce, ranks=GPUS + 1)
    assert {v["device"] for v in run.values} == {"cpu"} and {v["backend"] for v in run.values} == {"gloo"}
    with pytest.raises(BadLaunch, match=f"{GPUS + 1} ranks, but {GPUS} GPUs"):
        launch(ring_and_reduce, ranks=GPUS + 1, backend="nccl")


def test_the_kernel_never_initialises_cuda() -> None:
    needs(1)
    launch(ring_and_reduce, ranks=1, timeout=120)
    assert not torch.cuda.is_initialized()


def test_a_kernel_that_used_cuda_may_launch() -> None:
    needs(1)
    torch.ones(8, device="cuda").sum().item()
    assert launch(ring_and_reduce, ranks=1, timeout=120).values[0]["device"] == "cuda:0"
