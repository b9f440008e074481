"""Timing on ranks: how long until the slowest rank is done. Called inside `launch`, by every rank alike."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
import torch.distributed as dist


def time_on_ranks(step: Callable, *args: object, warmup: int = 2, tries: int = 7) -> list[float]:
    """Seconds of each try of `step(*args)`, counted from a barrier until the slowest rank has finished.

    Every rank of the default group calls it, and every rank gets the same list, of length `tries`. The
    first calls (`warmup`) are not counted: they open connections and touch memory for the first time. Work
    that a GPU has queued is waited for. ValueError when tries is below 1 or warmup below 0.

    >>> def body():                                          # doctest: +SKIP
    ...     x = torch.ones(1024)
    ...     return time_on_ranks(dist.all_reduce, x)
    >>> launch(body, ranks=4, trace=False).values[0]         # doctest: +SKIP
    [0.00031, 0.00028, 0.0003, 0.00029, 0.00041, 0.00029, 0.0003]
    """
    if tries < 1 or warmup < 0:
        raise ValueError(
            f"tries={tries} and warmup={warmup}: at least 1 try and no fewer than 0 warm-up calls"
        )
    for _ in range(warmup):
        step(*args)
    seconds = []
    for _ in range(tries):
        _settle()
        dist.barrier()
        start = perf_counter()
        step(*args)
        _settle()
        seconds.append(perf_counter() - start)
    slowest = torch.tensor(seconds, dtype=torch.float64, device=_device())
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()


def _settle() -> None:
    # A CUDA call returns before the GPU is done; without this only the launch of the work would be timed.
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _device() -> torch.device:
    on_gpu = torch.cuda.is_initialized() and dist.get_backend() == dist.Backend.NCCL
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
