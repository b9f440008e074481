"""How well and how fast the planner plans: prints one JSON object; what it predicts stands beside it, on stderr.

    python benchmarks/planner.py

search_s: the best plan for 175 billion parameters on 3840 GPUs. simulate_100k_s: one step of a trillion on 98,304.
median_error, worst_error: the published runs of arXiv 2104.04473, table 1, each predicted from parameters that the
others chose; constant_*: the same for a constant FLOP/s a GPU. local_time_error: the worst of the times that small
models take on 2 to 8 gloo ranks of this machine; local_traffic_error, local_memory_error: of their bytes. Fit and
measurement alternate in one run, of whose tries the median counts: FLOP/s come from a matrix product, what else a
byte costs from two other models on ranks that do not talk, alpha and bandwidth from collectives.

Left out of the times: pipelines of more ranks than cores, where idle ranks lend theirs to the others.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import launch
from utils.cost import AlphaBeta
from utils.measure import time_on_ranks
from utils.mesh import Mesh, ShardedStage, bytes_per_axis, run_gpipe
from utils.models import Transformer, TransformerConfig
from utils.planner import Cluster, Efficiency, Model, Plan, Workload, ledger, messages, step
from utils.planner.efficiency import A100, constant_errors, errors, leave_one_out
from utils.planner.published import gpt, ptdp_table_1, selene
from utils.planner.search import search
from utils.planner.simulate import simulate

SEQ, ROWS = 64, 8  # of one replica
# About as long as a step of TARGET, so that whatever disturbs one disturbs the other.
# Attention is fused as in the layers of `utils.mesh`.
CALIBRATION = [TransformerConfig(hidden=64, layers=8, heads=8, max_len=SEQ, tied=False, fused_attention=True),
               TransformerConfig(hidden=192, layers=3, heads=8, max_len=SEQ, tied=False, fused_attention=True)]
TARGET = TransformerConfig(hidden=128, layers=4, heads=8, max_len=SEQ, tied=False)
# (dp, pp, tp) by number of ranks; those with a pipeline on more than 2 ranks are held to their bytes only.
LAYOUTS = {2: [(2, 1, 1), (1, 1, 2), (1, 2, 1)], 4: [(4, 1, 1), (1, 1, 4), (2, 2, 1)], 8: [(8, 1, 1), (4, 2, 1)]}
PRODUCT, PRODUCTS = (ROWS * SEQ, 192, 768), 20  # [m, k] and [k, n] of the products that give FLOP/s, and how many
MICRO_BATCHES = 4  # of a pipeline
MICRO_ROWS = ROWS // MICRO_BATCHES
ENDS = ("embedding", "output")  # messages about a vocabulary that is cut over tp
SMALL, LARGE = 1_000, 1_000_000  # floats of the collectives that are fitted
ROUNDS = 15


def main() -> None:
    """Measure everything and print."""
    report: dict[str, object] = {**scale(), **published_errors()}
    rows = [row for ranks in LAYOUTS for row in local(ranks)]
    show(rows)
    timed = [row for row in rows if row["seconds"]]
    report |= {
        "local_time_error": round(max(abs(row["predicted"] / row["seconds"] - 1) for row in timed), 3),
        "local_time_error_median": round(
            statistics.median(abs(row["predicted"] / row["seconds"] - 1) for row in timed), 3),
        "local_traffic_error": max(abs(row["bytes_predicted"] - row["bytes"]) for row in rows),
        "local_memory_error": max(abs(row["held_predicted"] - row["held"]) for row in rows),
        "machine": fit_shown(rows[0]["machine"]),
        "local": {row["name"]: [round(row["predicted"], 4), round(row["seconds"], 4)] for row in timed},
    }  # fmt: skip
    print(json.dumps(report))


def scale() -> dict[str, float]:
    """Seconds of the search and of the simulation, the better of three tries: others may use the machine, too."""
    model, work, cluster = gpt("GPT-3 175B", 96, 12288, 96), Workload(1920), selene(3840)
    trillion = ptdp_table_1()[-1]
    plan, batch = replace(trillion.plan, dp=192), replace(trillion.workload, global_batch=192 * 64)
    return {
        "search_s": _best(lambda: search(model, work, cluster, A100)),
        "simulate_100k_s": _best(lambda: simulate(trillion.model, batch, selene(98304), plan, A100)),
    }


def _best(action) -> float:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return round(min(seconds), 3)


def published_errors() -> dict[str, float]:
    """Left one row out at a time, beside a constant."""
    median, worst = errors(leave_one_out())
    constant_median, constant_worst = constant_errors()
    found = {"median_error": median, "worst_error": worst}
    found |= {"constant_median_error": constant_median, "constant_worst_error": constant_worst}
    return {name: round(error, 4) for name, error in found.items()}


# This machine.


def shape_of(config: TransformerConfig, tp: int = 1) -> Model:
    """The planner's model of a small Transformer. `utils.mesh` does not cut the vocabulary: each rank has all of it."""
    return Model("local", config.layers, config.hidden, config.heads, config.kv_heads, config.ffn,
                 vocabulary=tp * config.vocab_size, positions=config.max_len, tied=config.tied)  # fmt: skip


def plan_of(layout: tuple[int, int, int]) -> Plan:
    """dp, pp, tp with GPipe, as `utils.mesh` runs it."""
    return Plan(layout[0], layout[2], layout[1], schedule="gpipe")


def workload_of(layout: tuple[int, int, int]) -> Workload:
    """ROWS rows a replica, in micro-batches where there is a pipeline; fp32, no dropout."""
    each = MICRO_ROWS if layout[1] > 1 else ROWS
    return Workload(ROWS * layout[0], each, SEQ, precision="fp32", flash_attention=True, dropout=False)


def tokens(rows: int) -> torch.Tensor:
    """[rows, SEQ] of numbers below 256."""
    return torch.arange(rows * SEQ).reshape(rows, SEQ) * 7 % 256


def dense_step(model: Transformer, rows: int):
    """One forward and backward pass of a whole model on so many rows."""
    inputs = tokens(rows)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs).flatten(0, 1), inputs.flatten()).backward()

    return run


def products(x: torch.Tensor, y: torch.Tensor) -> None:
    """PRODUCTS matrix products, one after the other."""
    for _ in range(PRODUCTS):
        torch.mm(x, y)


def mesh_step(layout: tuple[int, int, int]):
    """One step's forward, backward and reduction on a mesh; and the bytes of parameters that this rank holds."""
    torch.manual_seed(0)
    mesh = Mesh(*layout)
    stage = ShardedStage(Transformer(TARGET), mesh)
    pieces = tokens(ROWS).chunk(MICRO_BATCHES if layout[1] > 1 else 1)

    def loss_of(k: int, logits: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), pieces[k].flatten()) / len(pieces)

    def run() -> None:
        stage.zero_grad(set_to_none=True)
        run_gpipe(stage, mesh, pieces, loss_of)
        if layout[0] > 1:
            flat = torch.cat([parameter.grad.reshape(-1) for parameter in stage.parameters()])
            dist.all_reduce(flat, group=mesh.group("dp"))

    return run, sum(parameter.numel() * 4 for parameter in stage.parameters())


def on_ranks(layouts: list[tuple[int, int, int]]) -> dict:
    """On each rank: seconds of everything, in turns, and the bytes held."""
    actions = {
        f"dense {rows} {k}": dense_step(Transformer(config), rows)
        for rows in (ROWS, MICRO_ROWS) for k, config in enumerate(CALIBRATION)
    }  # fmt: skip
    actions["product"] = partial(products, *(torch.ones(shape) for shape in (PRODUCT[:2], PRODUCT[1:])))
    held = {}
    for size in (SMALL, LARGE):
        actions[f"sum {size}"] = partial(dist.all_reduce, torch.ones(size))
        actions[f"send {size}"] = partial(_pass_on, torch.ones(size))
    for layout in layouts:
        actions[layout], held[layout] = mesh_step(layout)
    seconds = {name: [] for name in actions}
    for turn in range(ROUNDS + 1):
        for name, action in actions.items():
            took = time_on_ranks(action, warmup=0, tries=1)[0]
            if turn:
                seconds[name].append(took)
    return {"seconds": seconds, "held": held}


def _pass_on(x: torch.Tensor) -> None:
    """Rank 0 sends to rank 1; the others wait at the next barrier."""
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)


def one_step(layout: tuple[int, int, int]) -> None:
    """What the journal sees: a step of this layout, and nothing else after the last barrier."""
    run, _ = mesh_step(layout)
    dist.barrier()
    run()


def local(ranks: int) -> list[dict]:
    """Predicted and measured for all layouts of so many ranks."""
    layouts = LAYOUTS[ranks]
    values = launch(on_ranks, layouts, ranks=ranks, timeout=400, trace=False).values
    typical = {name: statistics.median(tries) for name, tries in values[0]["seconds"].items()}
    rows = []
    for layout in layouts:
        plan, work = plan_of(layout), workload_of(layout)
        model = shape_of(TARGET, plan.tp)
        cluster = fitted(ranks, typical, "send" if plan.pp > 1 else "sum", work.micro_batch)
        sent = [one for one in messages(model, work, plan, cluster, stage=0) if one.phase not in ENDS]
        trace = launch(one_step, layout, ranks=ranks, timeout=60).trace
        since = trace.since(max(event.start for event in trace if event.op == "barrier"))
        rows.append({
            "name": f"dp{plan.dp} pp{plan.pp} tp{plan.tp}",
            "predicted": predicted_seconds(model, work, plan, cluster),
            "seconds": typical[layout] if plan.pp == 1 or ranks <= (os.cpu_count() or 1) else 0.0,
            "bytes_predicted": sum(one.total_sent for one in sent),
            "bytes": sum(bytes_per_axis(since, 0, layout).values()),
            "held_predicted": ledger(model, work, plan, stage=0).parameters,
            "held": values[0]["held"][layout],
            "machine": cluster,
        })  # fmt: skip
    return rows


def predicted_seconds(model: Model, work: Workload, plan: Plan, cluster: Cluster) -> float:
    """A step without the optimizer, which is not measured, and without messages about a cut vocabulary."""
    time_ = step(model, work, cluster, plan, Efficiency(dp_overlap=0.0))
    sent = messages(model, work, plan, cluster, stage=plan.pp - 1)
    ends = sum(one.total_seconds for one in sent if one.phase in ENDS)
    return time_.seconds - time_.optimizer - ends


def fitted(ranks: int, typical: dict, op: str, rows: int) -> Cluster:
    """This machine when so many ranks are at work, each on so many rows at a time: what one of them gets."""
    flops = PRODUCTS * 2 * math.prod(PRODUCT) / typical["product"]
    bandwidth = fit_bandwidth(flops, rows, [typical[f"dense {rows} {k}"] for k in range(len(CALIBRATION))])
    small, large = (typical[f"{op} {size}"] for size in (SMALL, LARGE))
    steps, moved = (2 * (ranks - 1), 2 * (ranks - 1) / ranks) if op == "sum" else (1, 1.0)
    beta = max(large - small, 1e-9) / (4 * (LARGE - SMALL) * moved)
    link = AlphaBeta(max(small - 4 * SMALL * moved * beta, 1e-9) / steps, beta)
    return Cluster("here", ranks, ranks, flops, 1e12, bandwidth, link, link, "this machine")


def fit_bandwidth(flops: float, rows: int, seconds: list[float]) -> float:
    """Bytes/s of memory with which the closed form is nearest to these times for the models of CALIBRATION.

    The start of an operator costs the same for few rows as for many, so few rows have a bandwidth of their own.

    A search on a grid of logarithms that closes in: the form has a roofline's corner, where slopes mislead.
    """
    work = Workload(rows, rows, SEQ, precision="fp32", flash_attention=True, dropout=False)

    def wrong(bandwidth: float) -> float:
        link = AlphaBeta(0.0, 0.0)
        machine = Cluster("trial", 1, 1, flops, 1e12, bandwidth, link, link)
        times = [step(shape_of(config), work, machine, Plan(), Efficiency()) for config in CALIBRATION]
        ratios = [(one.seconds - one.optimizer) / took for one, took in zip(times, seconds, strict=True)]
        return sum(math.log(ratio) ** 2 for ratio in ratios)

    best, width = 9.7, 1.5  # the logarithm of 5 GB/s, give or take a factor of 30
    for _ in range(4):
        best = min((best + width * k / 10 for k in range(-10, 11)), key=lambda log: wrong(10**log))
        width /= 5
    return 10**best


def fit_shown(machine: Cluster) -> dict[str, float]:
    """What one of two ranks gets, in the words of utils/planner/clusters/this-machine.yaml."""
    fit = {"flops": machine.flops, "memory_bandwidth": machine.memory_bandwidth, "alpha": machine.node.alpha}
    return {name: float(f"{value:.3g}") for name, value in {**fit, "bandwidth": machine.node.bandwidth}.items()}


def show(rows: list[dict]) -> None:
    """Predicted beside measured, on stderr."""
    heads = ("layout", "ms predicted", "measured", "error", "bytes sent", "measured", "bytes held", "measured")
    print(" ".join(f"{head:>13}" for head in heads), file=sys.stderr)
    for row in rows:
        timed = row["seconds"] > 0
        error = f"{row['predicted'] / row['seconds'] - 1:.1%}" if timed else ""
        cells = [row["name"], f"{row['predicted'] * 1e3:.1f}", f"{row['seconds'] * 1e3:.1f}" if timed else "", error]
        cells += [f"{row[name]:.0f}" for name in ("bytes_predicted", "bytes", "held_predicted", "held")]
        print(" ".join(f"{cell:>13}" for cell in cells), file=sys.stderr)


if __name__ == "__main__":
    main()
