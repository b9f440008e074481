"""The same function on a cluster: hand it to torchrun, or to Slurm's srun, unchanged.

    torchrun --nproc-per-node 4 -m utils.torchrun_entry step.py:probe
    srun --ntasks 8 python -m utils.torchrun_entry package.module:probe

The target is `file.py:function` or `module:function`, called without arguments after the process group is initialised
from the environment that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; under srun the SLURM_ variables are
read). nccl is used where each rank has a GPU, gloo elsewhere. Each rank prints its value; `--out FILE` has rank 0 write
all values as JSON. Exit code non-zero when any rank fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(target: str) -> Callable[[], Any]:
    """The function that `file.py:name` or `module:name` stands for. Raises SystemExit with a sentence."""
    place, _, name = target.rpartition(":")
    if not place:
        raise SystemExit(f"{target}: write file.py:function or module:function.")
    if place.endswith(".py"):
        if not Path(place).exists():
            raise SystemExit(f"{place} does not exist.")
        found = runpy.run_path(place, run_name="__ranks__").get(name)
    else:
        sys.path.insert(0, os.getcwd())
        found = getattr(importlib.import_module(place), name, None)
    if not callable(found):
        raise SystemExit(f"{place} has no function {name}.")
    return found


def read_slurm(env: dict[str, str]) -> dict[str, str]:
    """What torchrun would have set, from srun's variables; empty when torchrun set it or there is no Slurm."""
    if "RANK" in env or "SLURM_PROCID" not in env:
        return {}
    nodes = env.get("SLURM_JOB_NODELIST", "localhost")
    first = nodes.split(",")[0]
    if "[" in nodes:  # node[03-05,07] -> node03
        stem, _, ranges = nodes.partition("[")
        first = stem + ranges.split("-")[0].split(",")[0].rstrip("]")
    return {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": env["SLURM_NTASKS"],
        "LOCAL_RANK": env.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": env.get("MASTER_ADDR", first),
        "MASTER_PORT": env.get("MASTER_PORT", str(20000 + int(env.get("SLURM_JOB_ID", "0")) % 20000)),
    }


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: tensors and arrays as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def join() -> None:
    """Initialise torch.distributed from the environment, on this rank's GPU where there is one for each rank."""
    import torch
    import torch.distributed as dist

    local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    gpu = torch.cuda.is_available() and torch.cuda.device_count() >= max(here, local + 1)
    if gpu:
        torch.cuda.set_device(local)
        torch.set_default_device(f"cuda:{local}")
    dist.init_process_group("nccl" if gpu else "gloo")


def run(target: str, out: Path | None) -> None:
    """Run the target on this rank, print its value, gather all of them on rank 0."""
    import torch.distributed as dist

    fn = load(target)
    os.environ.update(read_slurm(dict(os.environ)))
    if "RANK" not in os.environ:
        raise SystemExit("no RANK in the environment: start this through torchrun or srun, as `--help` shows.")
    join()
    try:
        value = plain(fn())
        print(f"[rank {dist.get_rank()}] {value}", flush=True)
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        if out is not None and dist.get_rank() == 0:
            out.write_text(json.dumps(values))
    finally:
        dist.destroy_process_group()


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m utils.torchrun_entry", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", help="file.py:function or module:function")
    parser.add_argument("--out", type=Path, help="rank 0 writes all values here as JSON")
    options = parser.parse_args(argv)
    run(options.target, options.out)


if __name__ == "__main__":
    main()
