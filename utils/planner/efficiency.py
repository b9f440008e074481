"""One set of efficiency parameters per kind of hardware, fitted to published runs, and what they predict.

Five shares (`spec.Efficiency`) are chosen by least squares on the logarithm of predicted over measured throughput:
gemm, memory and node by the ten runs of table 1 of arXiv 2104.04473, between and dp_overlap by two runs of ZeRO-3 in
its table 2, one nearly all network, one where network and work take about as long. All else in `published` is
predicted, but the form of `Efficiency.beside` was chosen with the six runs of ZeRO-3 in sight. `leave_one_out`
predicts each run of table 1 from parameters that the others chose. Left out: uncertainty of the parameters, how
kernels depend on shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from utils.planner import published
from utils.planner.published import Run
from utils.planner.spec import Efficiency
from utils.planner.timing import StepTime, step

NAMES = ("gemm", "memory", "node", "between", "dp_overlap")
START = (0.6, 0.7, 0.8, 0.6, 0.6)

# What `fit(chosen_by())` gives, to four digits.
A100 = Efficiency(gemm=0.7005, memory=0.6375, node=0.7505, between=0.6611, dp_overlap=0.5881)

# Other hardware has the A100's shares until someone fits its own: carried over, not measured.
EFFICIENCY = {"A100": A100}


def of_hardware(hardware: str) -> tuple[Efficiency, bool]:
    """The parameters of a kind of hardware, and whether they were fitted to it or are those of the A100.

    >>> of_hardware("A100")[1], of_hardware("H100")[1]
    (True, False)
    """
    return EFFICIENCY.get(hardware, A100), hardware in EFFICIENCY


def run_time(run: Run, efficiency: Efficiency) -> StepTime:
    """The step of a published run, with what its software hid."""
    overlap = efficiency.dp_overlap if run.dp_overlap else 0.0
    efficiency = replace(efficiency, tp_overlap=run.tp_overlap, dp_overlap=overlap)
    return step(run.model, run.workload, run.cluster, run.plan, efficiency)


def predict(run: Run, efficiency: Efficiency) -> float:
    """What a run should have measured, in its own unit."""
    seconds = run_time(run, efficiency).seconds
    return seconds if run.unit == "s" else run.flops / seconds / run.plan.gpus


def fit(runs: Sequence[Run], start: Sequence[float] = START, rounds: int = 40) -> Efficiency:
    """The shares that predict these runs best, by Levenberg and Marquardt's method in logarithms of the shares.

    Needs at least as many runs as shares, else ValueError.
    """
    if len(runs) < len(NAMES):
        raise ValueError(f"{len(runs)} runs do not determine {len(NAMES)} shares: give at least {len(NAMES)} runs")
    place, damping = np.log(np.array(start)), 1e-2
    errors = _errors(runs, place)
    for _ in range(rounds):
        slopes = np.stack([(errors - _errors(runs, place - 1e-5 * unit)) / 1e-5 for unit in np.eye(len(NAMES))], axis=1)
        normal = slopes.T @ slopes
        move = np.linalg.solve(normal + damping * np.eye(len(NAMES)), -slopes.T @ errors)
        new = np.minimum(place + move, 0.0)  # a share is at most 1
        new_errors = _errors(runs, new)
        better = new_errors @ new_errors < errors @ errors
        if better and np.abs(new - place).max() < 1e-6:
            break
        place, errors = (new, new_errors) if better else (place, errors)
        damping = damping / 5 if better else damping * 5
    return _at(place)


def _at(place: np.ndarray) -> Efficiency:
    return Efficiency(*np.exp(place).tolist())


def _errors(runs: Sequence[Run], place: np.ndarray) -> np.ndarray:
    efficiency = _at(place)
    return np.array([np.log(predict(run, efficiency) / run.measured) for run in runs])


def chosen_by() -> list[Run]:
    """The runs that chose the parameters of the A100."""
    return [run for run in published.ptdp_table_1() + published.ptdp_table_2() if run.chose]


def leave_one_out() -> list[tuple[Run, float]]:
    """Each run of table 1 and what parameters fitted without it predict, in FLOP/s a GPU."""
    runs, table = chosen_by(), published.ptdp_table_1()
    return [(run, predict(run, fit([other for other in runs if other != run]))) for run in table]


def errors(pairs: Sequence[tuple[Run, float]]) -> tuple[float, float]:
    """(median, worst) of |predicted / measured - 1|."""
    wrong = [abs(predicted / run.measured - 1) for run, predicted in pairs]
    return float(np.median(wrong)), max(wrong)


def constant_errors() -> tuple[float, float]:
    """(median, worst) error of a constant FLOP/s a GPU for table 1: the median of the other nine runs."""
    table = published.ptdp_table_1()
    others = [[other.measured for other in table if other != run] for run in table]
    return errors([(run, float(np.median(rest))) for run, rest in zip(table, others, strict=True)])
