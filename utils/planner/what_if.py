"""Change one thing and see what changes: the ledger, the step, its timeline, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from utils.planner.candidate import Candidate
from utils.planner.explain import GB, Setting, differs, limits
from utils.planner.files import load_cluster, load_model
from utils.planner.simulate import SchedulesMissing, Simulated, simulate
from utils.planner.spec import Plan, Workload, filling

DEFAULTS = {
    "model": "7b", "cluster": "8x40gb", "gpus": 64, "batch": 128, "seq": 2048, "micro_batch": 1, "checkpoint": "none",
    "flash_attention": False, "tp": 2, "pp": 4, "cp": 1, "ep": 1, "zero": 1, "sequence_parallel": True,
    "schedule": "1f1b", "chunks": 1, "slow_gpus": None, "slow_links": None, "node_bandwidth": None, "usable": 0.9,
}  # fmt: skip


@dataclass(frozen=True)
class WhatIf:
    """A plan with its price and, where schedules are at hand, its simulated step. choices: all that was chosen."""

    choices: dict
    setting: Setting
    candidate: Candidate
    simulated: Simulated | None

    @property
    def fits(self) -> bool:
        """Whether it fits into what may be used of a GPU's memory."""
        return self.candidate.memory.total <= self.setting.room


def what_if(against: WhatIf | None = None, *, draw: bool = True, **changes: object) -> WhatIf:
    """Price, simulate, print and draw one plan; what is not named stays as in `against`, or as in DEFAULTS.

    dp fills the GPUs. Names: model and cluster (a given file or a path), gpus, batch, seq, micro_batch, checkpoint,
    flash_attention, tp, pp, cp, ep, zero, sequence_parallel, schedule, chunks, slow_gpus, slow_links, node_bandwidth
    (`simulate.simulate`), usable. ValueError with one sentence for an unknown name and for a plan that cannot be.

    >>> before = what_if(draw=False)                                      # doctest: +ELLIPSIS
    dp=8 tp=2 pp=4 zero=1 sequence-parallel 1f1b, 16 micro-batches of 1: ... GB of 36.0, fits, ... s a step, MFU ...
    >>> after = what_if(before, checkpoint="full", draw=False)            # doctest: +ELLIPSIS
    dp=8 tp=2 pp=4 zero=1 sequence-parallel 1f1b full recomputation, 16 micro-batches of 1: ...
    >>> after.candidate.memory.activations < before.candidate.memory.activations / 2
    True
    """
    unknown = [name for name in changes if name not in DEFAULTS]
    if unknown:
        raise ValueError(f"{unknown[0]} is no choice here; they are {', '.join(DEFAULTS)}")
    choices = {**(against.choices if against else DEFAULTS), **changes}
    new = _made(choices)
    one = new.candidate
    fits = "fits" if new.fits else "does not fit"
    print(f"{one.text()}: {one.memory.total / GB:.1f} GB of {new.setting.room / GB:.1f}, {fits}, "
          f"{one.time.seconds:.3g} s a step, MFU {one.time.mfu:.1%}")  # fmt: skip
    for sentence in limits(new.setting, one):
        print("  " + sentence)
    if new.simulated is not None:
        print("  " + _simulated(new))
    if against is not None:
        print("now / before:")
        if one != against.candidate:
            for sentence in differs(one, against.candidate, ("now", "before")):
                print("  " + sentence)
        if new.simulated is not None and against.simulated is not None:
            print(f"  simulated {new.simulated.seconds:.3g} / {against.simulated.seconds:.3g} s a step.")
    if draw:
        _draw(new, against)
    return new


def _made(choices: dict) -> WhatIf:
    cluster, efficiency = load_cluster(choices["cluster"], choices["gpus"])
    setting = Setting(load_model(choices["model"]), cluster, efficiency, choices["usable"])
    work = Workload(choices["batch"], choices["micro_batch"], choices["seq"], checkpoint=choices["checkpoint"],
                    flash_attention=choices["flash_attention"], dropout=False)  # fmt: skip
    chosen = {field.name: choices[field.name] for field in fields(Plan) if field.name in choices}
    plan = filling(choices["gpus"], **chosen)
    candidate = setting.price(plan, work)
    faults = {name: choices[name] for name in ("slow_gpus", "slow_links", "node_bandwidth")}
    try:
        played = simulate(setting.model, work, cluster, plan, efficiency, **faults)
    except SchedulesMissing as error:
        print(error)
        played = None
    return WhatIf(choices, setting, candidate, played)


def _simulated(new: WhatIf) -> str:
    played, kinds = new.simulated, len(new.simulated.classes.counts)
    return (f"Simulated: {played.seconds:.3g} s, of which {played.after_backward:.2g} s after the last backward pass; "
            f"bubble {played.slowest.bubble:.1%} of a pipeline's time; {kinds} kind"
            f"{'s' if kinds > 1 else ''} of replicas for {new.candidate.plan.gpus} GPUs.")  # fmt: skip


def _draw(new: WhatIf, against: WhatIf | None) -> None:
    import matplotlib.pyplot as plt

    from utils.pictures.schedule import draw_schedule
    from utils.planner.pictures import draw_ledgers, draw_steps

    plans = {"now": new.candidate} if against is None else {"before": against.candidate, "now": new.candidate}
    tall = 1.5 + 0.3 * new.candidate.plan.pp if new.simulated is not None else 0
    figure = plt.figure(figsize=(10, 2.3 + tall), layout="constrained")
    grid = figure.add_gridspec(2 if tall else 1, 2, height_ratios=[2.3, tall] if tall else [1])
    draw_ledgers(plans, new.setting.room, figure.add_subplot(grid[0, 0]))
    draw_steps(plans, figure.add_subplot(grid[0, 1]))
    if new.simulated is not None:
        below = figure.add_subplot(grid[1, :])
        draw_schedule(new.simulated.slowest, below, title="a replica's pipeline (rank = stage)", unit="s")
    plt.show()
