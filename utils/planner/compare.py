"""Papers' numbers beside this package's, as a table: `python -m utils.planner.compare`.

Runs of the papers first, each with the error of its prediction and, for those that chose parameters, the error of what
the other runs predict. Then what no constant utilisation can say: how throughput changes with recomputation, sequence
parallelism, interleaving and the number of GPUs under ZeRO-3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from utils.planner import efficiency as fitted
from utils.planner import published
from utils.planner.efficiency import A100, predict
from utils.planner.published import KORTHIKANTI, PTDP, Run
from utils.planner.spec import Efficiency, Plan, Workload
from utils.planner.timing import LayerTime, layer_time


@dataclass(frozen=True)
class Claim:
    """A change in percent that a paper prints, and what this package predicts for it.

    chose: whether one of the runs that it compares was used to choose parameters.
    """

    what: str
    source: str
    paper: float
    ours: float
    chose: bool = False

    @property
    def off(self) -> float:
        """How far the prediction is from the paper's size, as a share of it; above 1 also where the sign is wrong."""
        return abs(self.ours / self.paper - 1)


def percent(new: float, old: float) -> float:
    """The change from old to new in percent.

    >>> percent(3.0, 4.0)
    -25.0
    """
    return 100 * (new / old - 1)


def recomputation(efficiency: Efficiency = A100) -> list[Claim]:
    """Gain in throughput of selective recomputation with sequence parallelism over full recomputation."""
    runs, claims = published.korthikanti_table_5(), []
    for full, present, row in zip(runs[::2], runs[1::2], published.KORTHIKANTI_TABLE_5, strict=True):
        ours = percent(predict(full, efficiency), predict(present, efficiency))
        claims.append(Claim(f"{full.model.name}: selective + sp over full recomputation", KORTHIKANTI, row[8], ours))
    return claims


def zero_falls(efficiency: Efficiency = A100) -> list[Claim]:
    """Loss of FLOP/s a GPU when ZeRO-3 spreads the same model and batch over more GPUs."""
    claims = []
    table = [run for run in published.ptdp_table_2() if run.plan.zero == 3]
    for few, many in ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)):
        one, two = table[few], table[many]
        claims.append(Claim(f"{one.model.name}: ZeRO-3 from {one.plan.gpus} to {two.plan.gpus} GPUs", PTDP,
                            percent(two.measured, one.measured),
                            percent(predict(two, efficiency), predict(one, efficiency)),
                            one.chose or two.chose))  # fmt: skip
    return claims


def bubbles(efficiency: Efficiency = A100) -> list[Claim]:
    """Loss of FLOP/s a GPU when the same batch is cut into fewer micro-batches for each of more pipelines."""
    table = [run for run in published.ptdp_table_2() if run.plan.zero == 0]
    pairs = [(table[0], table[1]), (table[0], table[2]), (table[3], table[4]), (table[3], table[5])]
    return [Claim(f"{one.model.name}: dp {one.plan.dp} to {two.plan.dp}, pp {one.plan.pp}", PTDP,
                  percent(two.measured, one.measured), percent(predict(two, efficiency), predict(one, efficiency)))
            for one, two in pairs]  # fmt: skip


def interleaving_run(batch: int, chunks: int) -> Run:
    """A run of figure 12 of arXiv 2104.04473 (run_figure_12.sh): GPT-3 on 96 GPUs, tp 8, pp 12, micro-batches of 1."""
    plan = Plan(1, 8, 12, schedule="interleaved" if chunks > 1 else "1f1b", chunks=chunks)
    return Run(PTDP + " figure 12", published.GPT3, Workload(batch, 1, precision="fp16", checkpoint="full"), plan, 1.0)


def interleaving(efficiency: Efficiency = A100) -> list[Claim]:
    """Gain of the interleaved schedule with 4 chunks: 10 % and more (abstract), held to figure 12's largest batch."""
    gain = percent(predict(interleaving_run(60, 4), efficiency), predict(interleaving_run(60, 1), efficiency))
    return [Claim("174.6B on 96 GPUs, batch 60: interleaved with 4 chunks over 1F1B", PTDP, 10.0, gain)]


def layer_22b(checkpoint: str, sequence_parallel: bool, efficiency: Efficiency = A100) -> LayerTime:
    """A layer of the 22B model of table 4 of arXiv 2205.05198, whose software hides tp in the backward pass."""
    model = published.KORTHIKANTI_TABLE_5[0][0]
    work = Workload(4, 4, checkpoint=checkpoint)
    plan = Plan(tp=8, sequence_parallel=sequence_parallel)
    return layer_time(model, work, published.selene(8), plan, replace(efficiency, tp_overlap=True))


def layers(efficiency: Efficiency = A100) -> list[Claim]:
    """Overhead of recomputation in one layer, of table 4: 39 %, 7 % and 4 % over no recomputation."""
    base = layer_22b("none", False, efficiency).total
    paper = {(kind, sp): forward + backward for kind, sp, forward, backward in published.KORTHIKANTI_TABLE_4}
    return [Claim(f"22B layer: {kind} recomputation{', sp' * sp}", KORTHIKANTI,
                  percent(paper[kind, sp], paper["none", False]), percent(layer_22b(kind, sp, efficiency).total, base))
            for kind, sp in (("full", False), ("selective", False), ("none", True))]  # fmt: skip


def claims(efficiency: Efficiency = A100) -> list[Claim]:
    """All changes that papers print."""
    parts = (recomputation, zero_falls, bubbles, interleaving, layers)
    return [claim for part in parts for claim in part(efficiency)]


def run_rows(efficiency: Efficiency = A100) -> list[tuple[str, ...]]:
    """For each run of table 1, table 2 and table 5: text of its name, the paper's value, ours, and errors."""
    without = dict(fitted.leave_one_out())
    rows = [("run", "GPUs", "paper", "ours", "error", "left out")]
    for run in published.ptdp_table_1() + published.ptdp_table_2() + published.korthikanti_table_5():
        ours = predict(run, efficiency)
        scale, unit = (1.0, " s") if run.unit == "s" else (1e12, " TFLOP/s")
        left = f"{percent(without[run], run.measured):+.1f} %" if run in without else "chose" if run.chose else ""
        rows.append((f"{run.model.name} {run.workload.checkpoint}{' ZeRO-3' * (run.plan.zero == 3)}, {run.source}",
                     f"{run.plan.gpus}", f"{run.measured / scale:.2f}{unit}", f"{ours / scale:.2f}",
                     f"{percent(ours, run.measured):+.1f} %", left))  # fmt: skip
    return rows


def compare(efficiency: Efficiency = A100) -> str:
    """Papers beside this package, as text."""
    runs = run_rows(efficiency)
    changes = [("change", "paper", "ours", "")]
    for claim in claims(efficiency):
        changes.append((claim.what, f"{claim.paper:+.1f} %", f"{claim.ours:+.1f} %", "chose" * claim.chose))
    median, worst = fitted.errors(fitted.leave_one_out())
    constant = fitted.constant_errors()
    llama = [("Llama 3 405B on H100 with the A100's parameters, 2 or 8 chunks", "GPUs", "paper", "2", "8")]
    for few, many in zip(published.llama3_table_4(2), published.llama3_table_4(8), strict=True):
        values = [few.measured, predict(few, efficiency), predict(many, efficiency)]
        llama.append((few.source, str(few.plan.gpus), *(f"{value / 1e12:.0f} TFLOP/s" for value in values)))
    lines = [
        *_lines(runs),
        f"table 1 of {PTDP}, each run left out once: median error {median:.1%}, worst {worst:.1%};",
        f"a constant, the median of the other runs: median {constant[0]:.1%}, worst {constant[1]:.1%}",
        "",
        *_lines(changes),
        "",
        *_lines(llama),
    ]
    return "\n".join(lines)


def _lines(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]  # fmt: skip


if __name__ == "__main__":
    print(compare())
