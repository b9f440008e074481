"""What tracing costs: microseconds an operation on one rank, and per cent at 4 MB on two ranks, in one run.

Each rank holds two process groups of the same members, one traced and one plain, and calls the same operations on both
in turns. Prints one JSON object:

    us_per_op       tracing alone: an all_reduce over torch's fake backend, which moves nothing and is done at once
    us_per_op_gloo  the same over gloo: what tracing adds, and what gloo's own thread makes of being asked later
    overhead_4mb    traced over plain minus 1, all_reduce of 4 MB over gloo on two ranks
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from utils import launch


def plain_group() -> dist.ProcessGroup:
    """A group of all ranks that torch makes itself, without the journal."""
    from utils.trace.group import TracedGroup

    world = dist.group.WORLD
    assert isinstance(world, TracedGroup)
    return world.inner


def compare(traced: Callable[[], object], plain: Callable[[], object], count: int) -> list[float]:
    """Lower quartiles of the seconds of a call, traced and plain, one of each in turns: noise only adds time."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(count):
        for call, kept in zip((traced, plain), times, strict=True):
            start = time.perf_counter()
            call()
            kept.append(time.perf_counter() - start)
    return [statistics.quantiles(kept, n=4)[0] for kept in times]


def fake_backend(count: int) -> list[float]:
    """All-reduce of one float over a group that does nothing, traced and plain."""
    from torch.testing._internal.distributed.fake_pg import FakeProcessGroup

    from utils.trace.group import TracedGroup

    world = dist.group.WORLD
    inner = dist.ProcessGroup(0, 1)
    fake = FakeProcessGroup._create_internal(0, 1)
    inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, fake)
    inner._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    inner._set_group_name("fake")
    group = TracedGroup(inner, "fake", [0], world.recorder)
    group._set_group_desc("fake")
    x = torch.zeros(1)
    return compare(lambda: dist.all_reduce(x, group=group), lambda: dist.all_reduce(x, group=inner), count)


def one_tensor(numel: int, count: int) -> list[float]:
    """All-reduce of `numel` floats over gloo, through the traced world and through its plain inner group."""
    x, inner = torch.zeros(numel), plain_group()
    return compare(lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, group=inner), count)


def main() -> None:
    """Measure and print."""
    fake = launch(fake_backend, 5000, ranks=1, timeout=300).value
    small = launch(one_tensor, 1, 5000, ranks=1, timeout=300).value
    large = launch(one_tensor, 1_000_000, 600, ranks=2, timeout=300).value
    result = {
        "us_per_op": (fake[0] - fake[1]) * 1e6,
        "us_per_op_gloo": (small[0] - small[1]) * 1e6,
        "overhead_4mb": large[0] / large[1] - 1,
        "ms_4mb_plain": large[1] * 1e3,
    }
    print(json.dumps({name: round(value, 4) for name, value in result.items()}))


if __name__ == "__main__":
    main()
