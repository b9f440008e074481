"""How fast ranks start: `launch` beside a bare fork, torch.multiprocessing.spawn and torchrun, in one run.

Each way runs four gloo ranks that initialise by file, all-reduce one number and give it back; a time is from the call
to the values. Prints one JSON object: seconds (medians), and ours over theirs (`vs_*`, below 1 is faster).

    python benchmarks/launch.py            # all of it, about a minute
    python benchmarks/launch.py --quick    # without spawn and torchrun
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform != "darwin" else "lo0")

import torch
import torch.distributed as dist

from utils import launch

RANKS = 4
TORCHRUN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank())]); dist.all_reduce(x); print(x.item(), flush=True)
"""


def probe() -> float:
    """What every way runs on each rank."""
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()


def timed(call: Callable[[], object], repeats: int, pause: float) -> float:
    """Median seconds of `repeats` calls, with a pause before each so that background work is over."""
    seconds = []
    for _ in range(repeats):
        time.sleep(pause)
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def ours(ranks: int = RANKS) -> None:
    """One launch; the sum of the ranks' numbers must come back from all of them."""
    values = launch(probe, ranks=ranks).values
    assert values == [ranks * (ranks - 1) / 2] * ranks, values


def bare_fork(ranks: int = RANKS) -> None:
    """os.fork in this process, which has torch loaded: the floor that a launch is held to."""
    with tempfile.TemporaryDirectory() as folder:
        readers, pids = [], []
        for rank in range(ranks):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
                os.write(write, str(probe()).encode())
                os._exit(0)
            os.close(write)
            readers.append(read)
            pids.append(pid)
        values = [os.read(read, 64) for read in readers]
        assert values == [str(ranks * (ranks - 1) / 2).encode()] * ranks, values
        for pid, read in zip(pids, readers):
            os.waitpid(pid, 0)
            os.close(read)


def spawned(rank: int, store: str, queue: object) -> None:
    """What torch.multiprocessing.spawn runs on each rank."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    queue.put(probe())  # type: ignore[attr-defined]


def spawn() -> None:
    """torch.multiprocessing.spawn with a queue for the values."""
    with tempfile.TemporaryDirectory() as folder:
        queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
        torch.multiprocessing.spawn(spawned, (f"{folder}/store", queue), nprocs=RANKS)
        assert [queue.get() for _ in range(RANKS)] == [6.0] * RANKS


def torchrun() -> None:
    """torchrun on a script file."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(TORCHRUN)
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={RANKS}",
            str(script),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert done.stdout.count("6.0") == RANKS, done.stdout  # lines of ranks may run into each other


def measure(repeats: int, quick: bool) -> dict[str, float]:
    """All times of one run, ours and the bare fork taken in turns."""
    ours()  # the server is up
    both: dict[str, list[float]] = {"launch_s": [], "fork_s": [], "ranks8_s": []}
    for _ in range(repeats):
        both["launch_s"].append(timed(ours, 1, 0.3))
        both["fork_s"].append(timed(bare_fork, 1, 0.3))
        both["ranks8_s"].append(timed(lambda: ours(8), 1, 0.6))
    result = {name: statistics.median(times) for name, times in both.items()}
    result["back_to_back_s"] = timed(ours, repeats, 0.0)
    result["vs_fork"] = result["launch_s"] / result["fork_s"]
    result["ranks8_vs_ranks4"] = result["ranks8_s"] / result["launch_s"]
    result["back_to_back_vs_launch"] = result["back_to_back_s"] / result["launch_s"]
    if not quick:
        for name, way in (("spawn", spawn), ("torchrun", torchrun)):
            result[f"{name}_s"] = timed(way, 3, 0.3)
            result[f"vs_{name}"] = result["launch_s"] / result[f"{name}_s"]
    return {name: round(value, 4) for name, value in result.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="leave out spawn and torchrun")
    options = parser.parse_args()
    print(json.dumps(measure(options.repeats, options.quick)))


if __name__ == "__main__":
    main()
