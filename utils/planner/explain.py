"""Why this plan, in sentences: each choice against its neighbours, what limits it, and what two plans differ in.

Every number is computed: a neighbour is priced like any plan, and a limit is what a machine with twice of one thing
would save.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from utils.cost import AlphaBeta
from utils.planner.candidate import USABLE, Candidate, price
from utils.planner.model import Model
from utils.planner.refusal import refuse
from utils.planner.spec import CHECKPOINTS, Cluster, Efficiency, Plan, Workload
from utils.planner.timing import step

GB = 1e9
NAMES = {"tp": "TP", "pp": "PP", "cp": "CP", "ep": "EP", "zero": "ZeRO", "micro_batch": "micro-batch",
         "sequence_parallel": "sequence parallelism", "checkpoint": "recomputation", "chunks": "chunks"}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What stays the same while plans are compared."""

    model: Model
    cluster: Cluster
    efficiency: Efficiency
    usable: float = USABLE

    @property
    def room(self) -> float:
        """Bytes of a GPU that a plan may fill."""
        return self.usable * self.cluster.memory_bytes

    def price(self, plan: Plan, workload: Workload) -> Candidate:
        """Bytes and seconds of a plan."""
        return price(self.model, workload, self.cluster, plan, self.efficiency)


def explain(setting: Setting, best: Candidate) -> list[str]:
    """One sentence for each choice that its neighbours speak for.

    >>> from utils.planner.published import gpt, selene
    >>> setting = Setting(gpt("7.5B", 36, 4096, 32), selene(128), Efficiency())
    >>> best = setting.price(Plan(dp=128, zero=1), Workload(512, checkpoint="full"))
    >>> explain(setting, best)[0]                                         # doctest: +ELLIPSIS
    'TP 1: 2 would be ...
    """
    sentences = []
    for name in NAMES:
        texts = [_against(setting, best, name, value) for value in _neighbours(setting, best, name)]
        said = [text for text in texts if text]
        if said:
            sentences.append(f"{NAMES[name]} {_shown(name, best.value(name))}: {'; '.join(said)}.")
    return sentences


def _neighbours(setting: Setting, best: Candidate, name: str) -> Iterator[object]:
    """The next smaller and the next larger value of a choice."""
    value = best.value(name)
    if name == "sequence_parallel":
        yield from [not value] if best.plan.tp > 1 else []
    elif name == "checkpoint":
        place = CHECKPOINTS.index(value)
        yield from [CHECKPOINTS[k] for k in (place - 1, place + 1) if 0 <= k < len(CHECKPOINTS)]
    elif name == "zero":
        yield from [stage for stage in (value - 1, value + 1) if 0 <= stage <= 3 and best.plan.shards > 1]
    else:
        limit = _limit(setting, best, name)
        smaller = [n for n in range(1, value) if value % n == 0]
        larger = [n for n in range(value + 1, limit + 1) if limit % n == 0 and n % value == 0]
        yield from smaller[-1:] + larger[:1]


def _limit(setting: Setting, best: Candidate, name: str) -> int:
    """A number that all values of a choice divide."""
    plan = best.plan
    return {
        "tp": plan.tp * plan.dp, "pp": setting.model.layers // plan.chunks, "cp": plan.cp * plan.dp,
        "ep": plan.dp if setting.model.experts else 1, "micro_batch": best.workload.global_batch // plan.dp,
        "chunks": setting.model.layers // plan.pp if plan.pp > 1 else 1,
    }[name]  # fmt: skip


def changed(best: Candidate, name: str, value: object) -> tuple[Plan, Workload] | None:
    """The same plan with one choice changed and dp filling the GPUs; None where no dp does."""
    plan, work = best.plan, best.workload
    if name in ("micro_batch", "checkpoint"):
        return plan, replace(work, **{name: value})
    if name in ("tp", "pp", "cp"):
        others = plan.gpus // (plan.dp * getattr(plan, name)) * value
        if plan.gpus % others or (plan.gpus // others) % plan.ep:
            return None
        more = {"sequence_parallel": False} if name == "tp" and value == 1 else {}
        if name == "pp" and value == 1:
            more = {"schedule": "1f1b", "chunks": 1}
        return replace(plan, dp=plan.gpus // others, **{name: value}, **more), work
    if name == "chunks":
        return replace(plan, chunks=value, schedule="interleaved" if value > 1 else "1f1b"), work
    return replace(plan, **{name: value}), work


def _against(setting: Setting, best: Candidate, name: str, value: object) -> str | None:
    shown = _shown(name, value)
    other = changed(best, name, value)
    if other is None:
        return None
    sentence = refuse(setting.model, other[1], setting.cluster, other[0])
    if sentence:
        return f"{shown} cannot be ({sentence})"
    new = setting.price(*other)
    if new.memory.total > setting.room:
        part, before, after = max(_pairs(best.memory.rows(), new.memory.rows()), key=lambda row: row[2] - row[1])
        need = f"{new.memory.total / GB:.1f} GB of {setting.room / GB:.1f}"
        return f"{shown} does not fit ({need}; {part} {before / GB:.1f} -> {after / GB:.1f} GB)"
    more = new.time.seconds / best.time.seconds - 1
    if more < 0:
        return f"{shown} would be {-more:.1%} quicker"
    part, before, after = max(_pairs(best.time.parts(), new.time.parts()), key=lambda row: row[2] - row[1])
    if more < 5e-4:
        return f"{shown} takes as long ({new.memory.total / GB:.1f} GB instead of {best.memory.total / GB:.1f})"
    grown = f"{part} {_share(before, best)} -> {_share(after, best)} of a step"
    return f"{shown} would be {more:.1%} slower ({grown})"


def _pairs(before: list[tuple[str, float]], after: list[tuple[str, float]]) -> list[tuple[str, float, float]]:
    return [(name, old, new) for (name, old), (_, new) in zip(before, after, strict=True)]


def _share(seconds: float, one: Candidate) -> str:
    return f"{seconds / one.time.seconds:.1%}"


def _shown(name: str, value: object) -> str:
    return {True: "on", False: "off"}[value] if name == "sequence_parallel" else str(value)


def gains(setting: Setting, one: Candidate) -> list[tuple[str, float]]:
    """(what the machine has twice of, share of the step that this saves the same plan), the largest first."""
    cluster = setting.cluster
    machines = {
        "FLOP/s": replace(cluster, flops=2 * cluster.flops),
        "memory bandwidth": replace(cluster, memory_bandwidth=2 * cluster.memory_bandwidth),
        "bandwidth in a node": replace(cluster, node=_twice(cluster.node)),
        "bandwidth between nodes": replace(cluster, between=_twice(cluster.between)),
    }
    saved = [
        (name, 1 - step(setting.model, one.workload, machine, one.plan, setting.efficiency).seconds / one.time.seconds)
        for name, machine in machines.items()
    ]
    return sorted(saved, key=lambda pair: -pair[1])


def _twice(link: AlphaBeta) -> AlphaBeta:
    return AlphaBeta(link.alpha, link.beta / 2)


def limits(setting: Setting, best: Candidate) -> list[str]:
    """What limits a plan: where its time goes, and what a better machine would save."""
    time = best.time
    ideal = time.mfu * time.seconds
    spent = {"the FLOPs of the model at peak": ideal, "kernels below peak": time.compute - ideal}
    spent |= {name: seconds for name, seconds in time.parts() if name != "compute"}
    largest = sorted(((name, seconds) for name, seconds in spent.items() if seconds > 0), key=lambda pair: -pair[1])
    listed = ", ".join(f"{name} {_share(seconds, best)}" for name, seconds in largest if seconds > 5e-4 * time.seconds)
    first, *rest = gains(setting, best)
    memory = f"{best.memory.total / GB:.1f} of {setting.room / GB:.1f} GB"
    others = ", ".join(f"twice the {name} {saved:.1%}" for name, saved in rest)
    return [
        f"A step of {time.seconds:.3g} s is {listed}.",
        f"What limits it most is {first[0]}: twice of it would save {first[1]:.1%} of a step; {others}.",
        f"Memory: {memory} usable are taken on a GPU of stage {best.memory.stage}.",
    ]


def differs(one: Candidate, other: Candidate, names: tuple[str, str] = ("ours", "theirs")) -> list[str]:
    """What sets two plans of the same job apart, and what each part of a step costs in both."""
    fields = ("dp", *NAMES)
    apart = [f"{NAMES.get(name, 'DP')} {_shown(name, one.value(name))} / {_shown(name, other.value(name))}"
             for name in fields if one.value(name) != other.value(name)]  # fmt: skip
    sentences = [f"{names[0]} / {names[1]}: {', '.join(apart) or 'the same plan'}."]
    rows = [(name, a, b) for name, a, b in _pairs(one.time.parts(), other.time.parts()) if max(a, b) > 0]
    rows.sort(key=lambda row: -abs(row[1] - row[2]))
    parts = ", ".join(f"{name} {a:.3g} / {b:.3g} s" for name, a, b in rows)
    ratio = one.time.seconds / other.time.seconds - 1
    word = "quicker" if ratio < 0 else "slower"
    sentences.append(f"{one.time.seconds:.3g} / {other.time.seconds:.3g} s a step, {abs(ratio):.1%} {word}: {parts}.")
    sentences.append(f"{one.memory.total / GB:.1f} / {other.memory.total / GB:.1f} GB a GPU.")
    return sentences
