"""Where ranks run: nccl with a GPU for each, gloo on CPUs, or GPUs shared under gloo.

The kernel and the fork server never initialise CUDA. GPUs are counted by a short-lived rank, and only where torch was
built for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from .errors import BadLaunch


@dataclass(frozen=True)
class Placement:
    """The backend of a launch and the device of each rank."""

    backend: str
    devices: tuple[str, ...]


@lru_cache(maxsize=1)
def count_gpus(visible: str | None) -> int:
    """How many GPUs torch sees, asked in a process of its own so that this one never touches CUDA. `visible` is
    CUDA_VISIBLE_DEVICES, part of the key because the answer depends on it."""
    import torch

    if visible == "" or (torch.version.cuda is None and torch.version.hip is None):
        return 0
    code = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0


def place(ranks: int | None, backend: str, device: str) -> Placement:
    """Choose backend and devices for `ranks` ranks; refuses in a sentence with the numbers what cannot be."""
    if backend not in ("auto", "gloo", "nccl"):
        raise BadLaunch(f'backend={backend!r}: choose "auto", "gloo" or "nccl".')
    if device not in ("auto", "cpu", "cuda"):
        raise BadLaunch(f'device={device!r}: choose "auto", "cpu" or "cuda".')
    n = ranks or 1
    if (backend == "gloo" and device == "auto") or device == "cpu":
        if backend == "nccl":
            raise BadLaunch(
                'backend="nccl" moves GPU tensors only: leave device="auto", or choose backend="gloo" for CPU.'
            )
        return Placement("gloo", ("cpu",) * n)
    gpus = count_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if backend == "nccl" and gpus < n:
        raise BadLaunch(
            f'backend="nccl" needs one GPU a rank: {n} ranks, but {gpus} GPUs here. '
            f'Use backend="gloo", or at most {gpus} ranks.'
        )
    if device == "cuda" and gpus == 0:
        raise BadLaunch('device="cuda" needs a GPU, but torch sees none here. Leave device="auto" to run on the CPU.')
    if gpus >= n and backend != "gloo":
        return Placement("nccl", tuple(f"cuda:{r}" for r in range(n)))
    if device == "cuda":
        return Placement("gloo", tuple(f"cuda:{r % gpus}" for r in range(n)))
    return Placement("gloo", ("cpu",) * n)
