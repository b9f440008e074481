"""The same function on a cluster: hand it to torchrun, or to Slurm's srun, unchanged.

    torchrun --nproc-per-node 4 -m utils.torchrun_entry step.py:probe
    srun --ntasks 8 python -m utils.torchrun_entry lab01_allreduce.ipynb:on_the_cluster
    srun --ntasks 8 python -m utils.torchrun_entry "lab01_allreduce.ipynb:probe_ring_sum([(12, float32, 0, 0)])"

The target is a function without arguments, or a call, of a notebook, a script or a module; of a notebook only what the
call needs is run (see `utils.ranks.cells`). It is called once torch.distributed is initialised from what torchrun sets
(RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; under srun the SLURM_ variables are read). nccl is used where each rank has
a GPU, gloo elsewhere; gloo's network card is the one that leads to MASTER_ADDR, unless GLOO_SOCKET_IFNAME names one.
Ranks start with seeds of their own and one thread each, as in `launch`.

Each rank prints its value. `--out FILE` has rank 0 write all values as JSON, `--trace FILE` what the ranks said to each
other, as `launch(...).trace` has it: read it with `utils.trace.saved.load`. Exit code non-zero when any rank fails, or
when the ranks' operations did not fit each other; whoever waits for a lost rank says so and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from .ranks.cells import load
from .ranks.hosts import network_card, read_slurm

MEET_S, WAIT_S = 120.0, 600.0


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: tensors and arrays as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def shortened(text: str, most: int = 2000) -> str:
    """A text that a terminal can bear."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters; --out FILE has them all)"


def prepare() -> None:
    """Make the environment what torch.distributed expects. Raises SystemExit in a sentence where it cannot be."""
    os.environ.update(read_slurm(os.environ))
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"no {missing[0]} in the environment: start this through torchrun or srun, as `--help` shows.")
    numbers = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    if wrong := [f"{name}={text}" for name, text in numbers.items() if not text.isdigit()]:
        raise SystemExit(f"{wrong[0]}: a whole number is wanted.")
    if not 0 < int(numbers["MASTER_PORT"]) < 65536 or int(numbers["RANK"]) >= int(numbers["WORLD_SIZE"]):
        raise SystemExit("MASTER_PORT has to be between 1 and 65535, and RANK below WORLD_SIZE.")
    if card := network_card(os.environ):
        os.environ["GLOO_SOCKET_IFNAME"] = card


def run(target: str, out: Path | None, trace: Path | None, meet: float, timeout: float, traced: bool) -> None:
    """Run the target on this rank, print its value, gather everything on rank 0."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read once; warnings at every try to connect tell nothing
    fn = load(target)
    prepare()
    import torch
    import torch.distributed as dist

    from .ranks import rank as rank_module
    from .ranks.api import rank_seed
    from .ranks.cluster import Member, choose_backend

    rank_module.IN_RANK = True  # a launch inside is refused in a sentence
    member = Member(meet, timeout)
    backend, device = choose_backend()
    torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("OMP_NUM_THREADS") or 1))
    if backend == "nccl":
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    member.join(backend, traced)
    try:
        rank_module.seed(rank_seed(0, member.rank), backend == "nccl")
        value = plain(fn())
        print(f"[rank {member.rank}] {shortened(str(value))}", flush=True)
        mine = {"value": value, "events": member.plain_events(), "complete": member.complete}
        everything: list[Any] | None = [None] * member.size if member.rank == 0 else None
        dist.gather_object(mine, everything)
    except BaseException as error:
        print(member.explain(error), file=sys.stderr, flush=True)
        os._exit(1)  # torch's own clean-up may wait for ranks that are gone
    fault = report(everything, out, trace) if everything is not None else ""
    dist.destroy_process_group()
    if fault:
        raise SystemExit(fault)


def report(everything: list[dict[str, Any]], out: Path | None, trace: Path | None) -> str:
    """Write the files; returns what was wrong with the ranks' operations, if anything."""
    from .ranks.cluster import checked
    from .trace.events import Trace
    from .trace.saved import event_from_plain, save

    events = [event_from_plain(fields) for one in everything for fields in one["events"]]
    ends = [event.end or event.start for event in events]
    events.sort(key=lambda event: (event.start, event.rank))
    whole = Trace(len(everything), events, max(ends, default=0.0), all(one["complete"] for one in everything))
    if out is not None:
        out.write_text(json.dumps([one["value"] for one in everything]), encoding="utf-8")
    if trace is not None:
        save(whole, trace)
    return checked(whole)


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m utils.torchrun_entry", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", help="notebook.ipynb:function, file.py:function or module:function; or a call of it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rank 0 writes all values here as JSON")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="rank 0 writes here what the ranks said, as JSON")
    parser.add_argument("--no-trace", action="store_true", help="plain nccl or gloo, without a journal")
    parser.add_argument("--meet", type=float, default=MEET_S, metavar="S", help=f"seconds to meet in ({MEET_S:g})")
    parser.add_argument(
        "--timeout", type=float, default=WAIT_S, metavar="S", help=f"seconds that one operation may take ({WAIT_S:g})"
    )
    options = parser.parse_args(argv)
    if options.trace and options.no_trace:
        parser.error("--trace and --no-trace exclude each other")
    if not (options.meet > 0 and options.timeout > 0):
        parser.error("--meet and --timeout are seconds above 0")
    run(options.target, options.out, options.trace, options.meet, options.timeout, not options.no_trace)


if __name__ == "__main__":
    main()
