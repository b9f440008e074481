"""How long the lab's ring all-reduce takes, in times of torch's own: prints one JSON object.

    python benchmarks/allreduce.py

Four gloo ranks; both operations alternate in one run, and the median of the slowest rank's times is taken. The
ring is the reference solution, read from the lab's text source. Below 1: the ring was quicker.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

from autograder.sources.cells import read_source
from utils import launch

LAB = Path(__file__).resolve().parents[1] / "solutions" / "lab01_allreduce.py"
RANKS = 4
SIZES_MB = (1, 16, 64)
REPEATS = {1: 31, 16: 21, 64: 11}


def reference_ring():
    """`ring_all_reduce` of the lab's text source, with the two functions that it calls."""
    cells = {cell.name: cell.text for cell in read_source(LAB).cells if cell.kind == "solution"}
    namespace = {"torch": torch, "dist": dist}
    for name in ("ring_reduce_scatter", "ring_all_gather", "ring_all_reduce"):
        exec(compile(cells[name], f"<{name}>", "exec"), namespace)
    return namespace["ring_all_reduce"]


def alternate(ring, sizes: tuple[int, ...], repeats: dict[int, int]) -> dict[int, list[list[float]]]:
    """On a rank, by size: the seconds of the ring and of dist.all_reduce, in turns; the first is dropped."""
    times = {}
    for size in sizes:
        times[size] = [[], []]
        x = torch.ones(size * 1_000_000 // 4)
        for turn in range(repeats[size] + 1):
            for index, operation in enumerate((ring, dist.all_reduce)):
                dist.barrier()
                start = time.perf_counter()
                operation(x)
                if turn:
                    times[size][index].append(time.perf_counter() - start)
            x.fill_(1)
    return times


def main() -> None:
    run = launch(alternate, reference_ring(), SIZES_MB, REPEATS, ranks=RANKS, timeout=300, trace=False)
    report: dict[str, float] = {"ranks": RANKS}
    for size in SIZES_MB:
        ring, theirs = (
            statistics.median(
                max(turn) for turn in zip(*(by_rank[size][index] for by_rank in run.values), strict=True)
            )
            for index in (0, 1)
        )
        report |= {f"ring_{size}mb_s": round(ring, 5), f"dist_{size}mb_s": round(theirs, 5)}
        report[f"vs_dist_{size}mb"] = round(ring / theirs, 3)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
