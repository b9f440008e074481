"""Are many dimensions of parallelism put together rightly: groups, norms, losses, what is saved, the split found?

Each function holds plain data of the ranks to an oracle made elsewhere, and names the mistake where the numbers show
it. Layouts are (dp, pp, tp), ranks row-major. Left out: gradients, which `check.agree` looks at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from utils.checks.agree import agree
from utils.checks.answers import is_number
from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of, ranks_text, short

Alternatives = Mapping[str, float]


def groups_made(trace, wanted: Sequence[Sequence[int]], what: str) -> None:
    """Every rank called new_group for all of the `wanted` groups (lists of ranks), and all in the same order.

    A group of one rank, or of all, may be made or not. Further groups are let through.

    >>> groups_made(run.trace, [[0, 1], [2, 3]], "make_groups((2, 1, 2))")
    Traceback (most recent call last):
    CheckFailed: make_groups((2, 1, 2)): rank 2 never called new_group for [0, 1]: every rank makes every group ...
    """
    made = [[event.extra for event in trace.of(rank) if event.op == "new_group"] for rank in range(trace.ranks)]
    if not any(made) and any(1 < len(group) < trace.ranks for group in wanted):
        raise CheckFailed(f"{what}: no rank called dist.new_group. Build the groups with it; that is the task.")
    for group in wanted:
        if not 1 < len(group) < trace.ranks:
            continue
        members = ",".join(map(str, sorted(group)))
        missing = [rank for rank, calls in enumerate(made) if members not in calls]
        if missing:
            raise CheckFailed(
                f"{what}: {ranks_text(missing)} never called new_group for {list(group)}: every rank makes every "
                "group, also those it is no member of, and all in the same order."
            )
    for rank, calls in enumerate(made):
        if calls != made[0]:
            place = next(k for k, (a, b) in enumerate(zip([*calls, ""], [*made[0], ""], strict=False)) if a != b)
            raise CheckFailed(
                f"{what}: call {place + 1} of new_group is for other ranks on rank {rank} than on rank 0: the order "
                "must be the same on all ranks."
            )


def ranks_agree_on(values: Sequence[object], want: float, what: str, alternatives: Alternatives, rtol: float) -> None:
    """Every rank came back with the number `want`; `alternatives` are sentence -> the number that a mistake gives.

    >>> ranks_agree_on([2.0, 2.0], 1.0, "mesh_norm", {"every replica is counted": 2.0}, 1e-6)
    Traceback (most recent call last):
    CheckFailed: mesh_norm: rank 0 has 2, wanted 1: every replica is counted.
    """
    for rank, value in enumerate(values):
        if not is_number(value):
            raise CheckFailed(f"{what}: rank {rank} returned {type(value).__name__}; a number (a float) is wanted.")
        if math.isclose(value, want, rel_tol=rtol):
            continue
        fits = [text for text, other in alternatives.items() if math.isclose(value, other, rel_tol=rtol)]
        cause = f": {fits[0]}" if fits else ""
        others = [other for other, seen in enumerate(values) if is_number(seen) and not math.isclose(seen, value)]
        cause = cause or (f"; rank {others[0]} has {short(float(values[others[0]]))}" if others else "")
        raise CheckFailed(f"{what}: rank {rank} has {short(float(value))}, wanted {short(want)}{cause}.")


def losses(
    by_rank: Sequence[Sequence[float]],
    want: Sequence[float],
    what: str,
    rtol: float,
    alternatives: Callable[[], Mapping[str, Sequence[float]]] | None = None,
) -> None:
    """Every rank reports the losses of one process, step by step.

    alternatives: called when a loss is wrong; sentence -> the losses that a mistake gives, named where the first wrong
        step fits.

    >>> losses([[5.0, 4.0]], [5.0, 3.0], "mesh_step", 1e-6)
    Traceback (most recent call last):
    CheckFailed: mesh_step: the loss of step 2 on rank 0 is 4, in one process it is 3. Step 1 is right, so the ...
    """
    for rank, got in enumerate(by_rank):
        if len(got) != len(want) or not all(is_number(value) for value in got):
            shown = listed(sorted({type(value).__name__ for value in got})) if len(got) else "nothing"
            raise CheckFailed(f"{what}: rank {rank} returned {shown}; a number (the loss) is wanted after each step.")
        wrong = [k for k, (a, b) in enumerate(zip(got, want, strict=True)) if not math.isclose(a, b, rel_tol=rtol)]
        if not wrong:
            continue
        step = wrong[0]
        fits = [
            text
            for text, other in (alternatives() if alternatives else {}).items()
            if step < len(other) and math.isclose(got[step], other[step], rel_tol=max(rtol, 1e-6))
        ]
        cause = fits[0] if fits else _where_to_look(step, got[step], want[step])
        off = f"{abs(got[step] / want[step] - 1):.1e}"
        raise CheckFailed(
            f"{what}: the loss of step {step + 1} on rank {rank} is {short(got[step])}, in one process it is "
            f"{short(want[step])} (off by {off} of it). {cause}"
        )


def _where_to_look(step: int, got: float, want: float) -> str:
    if step:
        return f"{'Step 1 is' if step == 1 else f'Steps 1 to {step} are'} right, so the update is not."
    if got == 0:
        return "Does every rank get the loss that only the last stage knows?"
    return f"It is {short(got / want)} times that: the mean over micro-batches and replicas is wanted, on every rank."


def written_once(by_rank: Sequence[object], want: Mapping[str, torch.Tensor], what: str, rtol: float) -> None:
    """The dictionaries that the ranks write hold each wanted name exactly once, whole and right.

    >>> written_once([{"w": torch.ones(2)}, {"w": torch.ones(2)}], {"w": torch.ones(2)}, "save", 1e-6)
    Traceback (most recent call last):
    CheckFailed: save: "w" is written by ranks 0 and 1; each name must be written once.
    """
    writers: dict[str, list[int]] = {}
    for rank, part in enumerate(by_rank):
        if not isinstance(part, Mapping):
            raise CheckFailed(f"{what}: rank {rank} returned {type(part).__name__}; a dictionary is wanted (or {{}}).")
        for name in part:
            writers.setdefault(name, []).append(rank)
    missing = [name for name in want if name not in writers]
    if missing:
        some = listed([f'"{name}"' for name in missing[:3]])
        raise CheckFailed(f"{what}: nobody writes {some} ({number_of(len(missing), 'name')} of {len(want)} missing).")
    twice = [name for name, ranks in writers.items() if len(ranks) > 1]
    if twice:
        raise CheckFailed(f'{what}: "{twice[0]}" is written by {ranks_text(writers[twice[0]])}; '
                          f"each name must be written once ({len(twice)} are written more often).")  # fmt: skip
    whole = {name: tensor for part in by_rank for name, tensor in part.items()}
    for name, tensor in want.items():
        got = whole[name]
        if isinstance(got, torch.Tensor) and got.shape != tensor.shape and got.numel() < tensor.numel():
            raise CheckFailed(f'{what}: "{name}", written by rank {writers[name][0]}, has shape {tuple(got.shape)}; '
                              f"the whole tensor has {tuple(tensor.shape)}: this is one rank's shard.")  # fmt: skip
    agree(whole, want, what, rtol=rtol, atol=rtol)


def split_found(got: object, legal: Mapping[tuple, float], why_not, what: str) -> None:
    """`got` is a cheapest legal split; `legal`: split -> its cost, all that are legal and fit into memory.

    got: four numbers (dp, pp, tp, micro_batches), or None. why_not(split) says in words what an illegal one breaks.

    >>> split_found((4, 1, 1, 1), {(4, 1, 1, 1): 3.0, (2, 2, 1, 4): 2.0}, print, "best_split")
    Traceback (most recent call last):
    CheckFailed: best_split: (dp 4, pp 1, tp 1, 1 micro-batch) takes 3 s; there is a legal split that takes 2 s.
    """
    if got is None:
        if legal:
            raise CheckFailed(f"{what}: None came back, but there are {len(legal)} legal splits.")
        return
    if not isinstance(got, (list, tuple)) or len(got) != 4 or not all(isinstance(n, int) and n > 0 for n in got):
        raise CheckFailed(f"{what} returned {got!r}; a Split, or None, is wanted.")
    got = tuple(got)
    if got not in legal:
        raise CheckFailed(f"{what}: {_named(got)} is not legal: {why_not(got)}")
    best = min(legal.values())
    if not math.isclose(legal[got], best, rel_tol=1e-9):
        raise CheckFailed(
            f"{what}: {_named(got)} takes {short(legal[got])} s; there is a legal split that takes {short(best)} s."
        )


def _named(split: Sequence[int]) -> str:
    dp, pp, tp, micro = split
    return f"(dp {dp}, pp {pp}, tp {tp}, {number_of(micro, 'micro-batch').replace('batchs', 'batches')})"


def axis_bytes(got: Mapping[str, int], most: Mapping[str, tuple[float, str]], what: str, rank: int = 0) -> None:
    """No more bytes went along an axis than `most` says: axis -> (bytes, in words what has to travel there).

    got: what `rank` sent, by axis.

    >>> axis_bytes({"dp": 64, "tp": 64}, {"tp": (0, "nothing")}, "sync_gradients")
    Traceback (most recent call last):
    CheckFailed: sync_gradients: rank 0 sent 64 bytes along tp; 0 are enough (nothing).
    """
    for axis, (limit, why) in most.items():
        if got.get(axis, 0) > limit:
            raise CheckFailed(
                f"{what}: rank {rank} sent {got[axis]} bytes along {axis}; {limit:.0f} are enough ({why})."
            )


def axis_needs(got: Mapping[str, int], least: Mapping[str, tuple[float, str]], what: str) -> None:
    """What a rank cannot know did reach it: axis -> (bytes that it needs, in words what they are).

    Right values alone are no evidence: they may have been worked out without the other ranks.

    >>> axis_needs({"dp": 0}, {"dp": (64, "the other replicas' gradients")}, "sync_gradients, rank 1")
    Traceback (most recent call last):
    CheckFailed: sync_gradients, rank 1: 0 bytes came along dp, and it needs 64 (the other replicas' gradients): ...
    """
    for axis, (needed, why) in least.items():
        if got.get(axis, 0) < needed:
            raise CheckFailed(
                f"{what}: {got.get(axis, 0)} bytes came along {axis}, and it needs "
                f"{needed:.0f} ({why}): what one rank works out alone is not parallel."
            )
