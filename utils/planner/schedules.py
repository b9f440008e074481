"""The three schedules of a pipeline, made: GPipe, 1F1B and interleaved 1F1B, in the form of `utils.schedules`.

GPipe: Huang et al. 2019, arXiv 1811.06965. 1F1B: PipeDream-Flush, Narayanan et al. 2021, arXiv 2006.09503. Interleaved
1F1B: Narayanan et al. 2021, arXiv 2104.04473, section 2.2. Left out: schedules that split B in two (zero bubble).
"""

from __future__ import annotations

from utils.schedules import Action, Schedule


def make_schedule(name: str, stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """The actions of each of `stages` ranks for "gpipe", "1f1b" or "interleaved"; `chunks` (v) for the last one.

    ValueError for another name, and where interleaving has m no multiple of p.

    >>> from utils.schedules import action_text
    >>> " ".join(map(action_text, make_schedule("1f1b", 2, 3)[0]))
    '0F0 0F1 0B0 0F2 0B1 0B2'
    """
    if name not in ("gpipe", "1f1b", "interleaved"):
        raise ValueError(f"schedule is {name!r}; it is one of gpipe, 1f1b, interleaved")
    if name == "interleaved" and micro_batches % stages:
        raise ValueError(f"{micro_batches} micro-batches are not a multiple of the {stages} ranks that interleave them")
    passes = micro_batches * (chunks if name == "interleaved" else 1)
    return [_one_rank(name, rank, stages, passes, chunks) for rank in range(stages)]


def _one_rank(name: str, rank: int, stages: int, passes: int, chunks: int) -> list[Action]:
    """Warm-up forwards, then one forward and one backward in turn, then the backwards that are left."""
    warm_up = {"gpipe": passes, "1f1b": stages - 1 - rank}.get(name, 2 * (stages - 1 - rank) + (chunks - 1) * stages)
    warm_up = min(warm_up, passes)
    v = chunks if name == "interleaved" else 1
    actions = [_action("F", rank, k, stages, v) for k in range(warm_up)]
    for k in range(passes - warm_up):
        actions += [_action("F", rank, warm_up + k, stages, v), _action("B", rank, k, stages, v)]
    return actions + [_action("B", rank, k, stages, v) for k in range(passes - warm_up, passes)]


def _action(op: str, rank: int, k: int, stages: int, chunks: int) -> Action:
    """The k-th forward or backward of a rank: micro-batches in groups of `stages`, chunk by chunk."""
    if chunks == 1:
        return op, rank, k
    group, place = divmod(k, stages * chunks)
    chunk, within = divmod(place, stages)
    chunk = chunk if op == "F" else chunks - 1 - chunk
    return op, rank + chunk * stages, group * stages + within
