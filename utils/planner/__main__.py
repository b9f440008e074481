"""The planner on the command line: the best plan of a model on a cluster, its ledger, its step, and why.

    python -m utils.planner 7b 8x40gb --batch 64 --seq 2048
    python -m utils.planner gpt3-175b dgx-a100 --gpus 1536 --batch 1536 --tp 8 --pp 8      # some choices are given
    python -m utils.planner my-model.yaml my-cluster.yaml --front                         # memory against time
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from utils.planner.candidate import USABLE, Candidate
from utils.planner.explain import GB, Setting, explain, limits
from utils.planner.files import load_cluster, load_model, names
from utils.planner.spec import CHECKPOINTS, PRECISION_BYTES, Plan, Workload, filling

CHOICES = ("tp", "pp", "cp", "ep", "zero", "micro_batch", "chunks")


def main(arguments: list[str] | None = None) -> int:
    """Print the plan; 0, 1 where none fits, 2 where the question cannot be answered, with one sentence."""
    options = _parser().parse_args(arguments)
    try:
        model = load_model(options.model)
        cluster, efficiency = load_cluster(options.cluster, options.gpus)
        workload = Workload(options.batch, seq=options.seq, precision=options.precision,
                            flash_attention=options.flash_attention, dropout=options.dropout)  # fmt: skip
        setting = Setting(model, cluster, efficiency, options.usable)
        size = f"{model.name}, {model.parameters / 1e9:.4g} billion parameters"
        print(f"{size}, on {cluster.gpus} GPUs of {cluster.name}; {options.batch} x {options.seq} tokens a step")
        return _answer(setting, workload, options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    given = f"models: {', '.join(names('models'))}. clusters: {', '.join(names('clusters'))}."
    parser = argparse.ArgumentParser("python -m utils.planner", description="The best plan of a model on a cluster.",
                                     epilog=given)  # fmt: skip
    parser.add_argument("model", metavar="MODEL", help="a given model or a YAML file")
    parser.add_argument("cluster", metavar="CLUSTER", help="a given cluster or a YAML file")
    parser.add_argument("--batch", type=int, default=1024, help="sequences in a step (1024)")
    parser.add_argument("--seq", type=int, default=2048, help="tokens in a sequence (2048)")
    parser.add_argument("--gpus", type=int, help="how many GPUs, in place of the cluster's number")
    parser.add_argument("--precision", choices=tuple(PRECISION_BYTES), default="bf16")
    parser.add_argument("--flash-attention", action="store_true", help="scores never reach memory")
    parser.add_argument("--dropout", action="store_true", help="masks are kept")
    parser.add_argument("--usable", type=float, default=USABLE, help=f"share of a GPU's memory ({USABLE})")
    parser.add_argument("--front", action="store_true", help="also print the front of memory against time")
    for name in CHOICES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="give this choice instead of searching it")
    parser.add_argument("--checkpoint", choices=CHECKPOINTS, help="give the recomputation")
    parser.add_argument("--sequence-parallel", action=argparse.BooleanOptionalAction, help="give it, on or off")
    return parser


def _answer(setting: Setting, workload: Workload, options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in (*CHOICES, "checkpoint", "sequence_parallel")}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        from utils.planner.search import Space, front, search
    except ImportError:
        return _given_plan(setting, workload, given)
    space = Space(**given)
    found = search(setting.model, workload, setting.cluster, setting.efficiency, space, setting.usable)
    if found.best is None:
        print(_nothing(setting, found.smallest), file=sys.stderr)
        return 1
    print(f"{found.considered} legal shapes, {found.priced} plans priced\n")
    show(setting, found.best)
    if options.front:
        print("\nmemory against time:")
        for one in front(setting.model, workload, setting.cluster, setting.efficiency, space):
            print(f"  {one.memory.total / GB:8.1f} GB {one.time.seconds:9.3f} s  {one.text()}")
    return 0


def _nothing(setting: Setting, smallest: Candidate | None) -> str:
    if smallest is None:
        return "no plan is legal: the numbers of GPUs, layers, heads and sequences have too few divisors in common"
    room = f"{setting.room / GB:.1f} GB usable"
    return f"nothing fits: the smallest plan needs {smallest.memory.total / GB:.1f} GB of {room}: {smallest.text()}"


def _given_plan(setting: Setting, workload: Workload, given: dict) -> int:
    """Without the search, which comes after lab 07: price one plan, dp filling the GPUs."""
    from dataclasses import replace

    work = {name: given.pop(name) for name in ("micro_batch", "checkpoint") if name in given}
    chosen = {field.name: given[field.name] for field in fields(Plan) if field.name in given}
    plan = filling(setting.cluster.gpus, **chosen)
    print("the search is written in lab 07, and comes when a later lab is out; this is the plan that was given\n")
    one = setting.price(plan, replace(workload, **work))
    show(setting, one)
    return 0 if one.memory.total <= setting.room else 1


def show(setting: Setting, one: Candidate) -> None:
    """Print a plan as tables: its choices, the bytes of a GPU, the seconds of a step, and what speaks for it."""
    time, room = one.time, setting.room
    print(f"plan    {one.text()}")
    print(f"speed   {time.seconds:.4g} s a step, {time.tokens_per_second:.4g} tokens/s, MFU {time.mfu:.1%}")
    print(f"\nbytes of a GPU of stage {one.memory.stage} (the fullest), {room / GB:.1f} GB usable")
    for name, nbytes in [*one.memory.rows(), ("total", one.memory.total)]:
        print(f"  {name:12} {nbytes / GB:8.2f} GB {nbytes / room:7.1%}")
    print("\nseconds of a step")
    for name, seconds in [*time.parts(), ("total", time.seconds)]:
        if seconds:
            print(f"  {name:12} {seconds:8.3g} s  {seconds / time.seconds:7.1%}")
    print("\nwhat limits it")
    for sentence in limits(setting, one):
        print(f"  {sentence}")
    print("\nwhy not another")
    for sentence in explain(setting, one):
        print(f"  {sentence}")


if __name__ == "__main__":
    sys.exit(main())
