"""Is a pipeline schedule complete, can it run, is it fast and lean enough; and did ranks run what it says?

Schedules are data (`utils.schedules`). Byte counts are those of the journal (`utils.trace`). Left out: time on
the clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of, ranks_text, short
from utils.schedules import Action, Schedule, Seconds, action_text, most_in_flight, needs, play


def schedule(got: object, p: int, m: int, what: str, *, chunks: int = 1) -> Schedule:
    """`got` is a schedule of `chunks` stages a rank that runs to its end; returns it with tuples for actions.

    Raises CheckFailed: the form, an action that is missing, foreign or run twice, or where it gets stuck.

    >>> schedule([[("B", 0, 0), ("F", 0, 0)]], 1, 1, "gpipe")
    Traceback (most recent call last):
    CheckFailed: gpipe (p = 1, m = 1): it cannot run. Rank 0 waits at 0B0 for 0F0, which comes later in its own list.
    """
    where = case_text(what, p, m, chunks)
    actions = _form(got, p, where)
    for rank in range(p):
        _complete(actions[rank], rank, p, m, chunks, where)
    stuck = play(actions).stuck
    if stuck:
        raise CheckFailed(f"{where}: it cannot run. {_why_stuck(stuck, actions, p * chunks)}")
    return actions


def case_text(what: str, p: int, m: int, chunks: int = 1) -> str:
    """`case_text("interleaved", 2, 4, 3)` is "interleaved (p = 2, m = 4, v = 3)"."""
    return f"{what} (p = {p}, m = {m}{f', v = {chunks}' if chunks > 1 else ''})"


def _form(got: object, p: int, where: str) -> Schedule:
    if not isinstance(got, (list, tuple)) or not all(isinstance(actions, (list, tuple)) for actions in got):
        raise CheckFailed(f"{where}: a list with one list of actions for each rank is wanted, not {_shown(got)}.")
    if len(got) != p:
        there = f"there {'is' if len(got) == 1 else 'are'} {number_of(len(got), 'list')} of actions"
        raise CheckFailed(f"{where}: {there}; each of {number_of(p, 'rank')} needs one.")
    for rank, actions in enumerate(got):
        for action in actions:
            if not _is_action(action):
                form = '("F" or "B", stage, micro_batch)'
                raise CheckFailed(f"{where}: rank {rank} has {_shown(action)} in its list; an action is {form}.")
    return [[tuple(action) for action in actions] for actions in got]


def _is_action(action: object) -> bool:
    if not isinstance(action, (list, tuple)) or len(action) != 3 or action[0] not in ("F", "B"):
        return False
    return all(isinstance(number, int) and not isinstance(number, bool) for number in action[1:])


def _complete(actions: list[Action], rank: int, p: int, m: int, chunks: int, where: str) -> None:
    """Each F and each B of each stage of this rank is there once, and nothing else."""
    stages = range(rank, p * chunks, p)
    counts = Counter(actions)
    for action in actions:
        _, stage, micro_batch = action
        if not 0 <= stage < p * chunks:
            raise CheckFailed(f"{where}: rank {rank} runs {_spoken(action)}; the stages are 0 to {p * chunks - 1}.")
        if stage not in stages:
            raise CheckFailed(f"{where}: rank {rank} runs {_spoken(action)}; that stage is on rank {stage % p}.")
        if not 0 <= micro_batch < m:
            known = "there is only micro-batch 0" if m == 1 else f"the micro-batches are 0 to {m - 1}"
            raise CheckFailed(f"{where}: rank {rank} runs {_spoken(action)}; {known}.")
        if counts[action] > 1:
            raise CheckFailed(f"{where}: rank {rank} runs {_spoken(action)} {counts[action]} times.")
    for wanted in [(op, stage, k) for stage in stages for op in "FB" for k in range(m)]:
        if not counts[wanted]:
            raise CheckFailed(f"{where}: rank {rank} never runs {_spoken(wanted)}.")


def _why_stuck(stuck: Mapping[int, Action], actions: Schedule, stages: int) -> str:
    """Follow who waits for whom until a rank comes up again, and tell of the ranks in that circle."""
    rank, met = next(iter(stuck)), []
    while rank not in met:
        met.append(rank)
        rank = _waits_for(stuck[rank], stuck, actions, stages)[1] % len(actions)
    sentences = []
    for one in met[met.index(rank) :]:
        need = _waits_for(stuck[one], stuck, actions, stages)
        home = need[1] % len(actions)
        whose = "its own" if home == one else f"rank {home}'s"
        waits = f"Rank {one} waits at {action_text(stuck[one])} for {action_text(need)}"
        sentences.append(f"{waits}, which comes later in {whose} list.")
    return " ".join(sentences)


def _waits_for(action: Action, stuck: Mapping[int, Action], actions: Schedule, stages: int) -> Action:
    """The first need of an action that its rank has not run."""
    for need in needs(action, stages):
        home = need[1] % len(actions)
        if home in stuck and need in actions[home][actions[home].index(stuck[home]) :]:
            return need
    raise AssertionError("a complete schedule that is stuck waits for something that did not run")


def in_flight(actions: Schedule, most: Sequence[int], where: str) -> None:
    """No rank holds the activations of more micro-batches than `most[rank]` at once.

    >>> in_flight([[("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)]], [1], "one_f_one_b (p = 1, m = 2)")
    Traceback (most recent call last):
    CheckFailed: one_f_one_b (p = 1, m = 2): rank 0 has 2 micro-batches in flight at once; 1 is enough. All forwards ...
    """
    held = [most_in_flight(own) for own in actions]
    over = [rank for rank, (count, limit) in enumerate(zip(held, most, strict=True)) if count > limit]
    if over:
        rank = over[0]
        enough = f"{most[rank]} {'is' if most[rank] == 1 else 'are'} enough"
        raise CheckFailed(
            f"{where}: rank {rank} has {held[rank]} micro-batches in flight at once; {enough}."
            f"{_hint(actions, held, most, over)}"
        )


def _hint(actions: Schedule, held: list[int], most: Sequence[int], over: list[int]) -> str:
    if all(2 * held[rank] == len(actions[rank]) for rank in over):
        return " All forwards come before the first backward: that is GPipe."
    if all(held[rank] == most[rank] + 1 for rank in over):
        return " One warm-up forward too many?"
    return ""


def schedule_seconds(
    actions: Schedule, most: float, where: str, *, forward: Seconds = 1, backward: Seconds = 2
) -> None:
    """Played through with these costs the schedule takes at most `most`.

    >>> schedule_seconds([[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]], 5, "gpipe (p = 2, m = 1)")
    Traceback (most recent call last):
    CheckFailed: gpipe (p = 2, m = 1): with F costing 1 and B costing 2 it takes 6, and 5 is possible: ...
    """
    timeline = play(actions, forward, backward)
    if timeline.seconds <= most + 1e-9:
        return
    idle = [timeline.seconds - timeline.busy(rank) for rank in range(timeline.ranks)]
    worst = [rank for rank, seconds in enumerate(idle) if seconds == max(idle)]
    raise CheckFailed(
        f"{where}: with F costing {_costs(forward)} and B costing {_costs(backward)} it takes "
        f"{short(float(timeline.seconds))}, and {short(float(most))} is possible: {ranks_text(worst)} "
        f"{'is' if len(worst) == 1 else 'are'} idle for {short(float(max(idle)))}."
    )


def ran_as_told(ran: Sequence[Action], told: Sequence[Action], rank: int, where: str) -> None:
    """A rank ran the actions of its list, in its order.

    >>> ran_as_told([("F", 0, 0), ("F", 0, 1), ("B", 0, 1)], [("F", 0, 0), ("F", 0, 1), ("B", 0, 0)], 0, "a step")
    Traceback (most recent call last):
    CheckFailed: a step: rank 0 ran 0B1 where its list says 0B0 (action 2).
    """
    ran, told = [tuple(action) for action in ran], list(told)
    for index, (did, should) in enumerate(zip(ran, told)):
        if did != should:
            instead = f"rank {rank} ran {action_text(did)} where its list says {action_text(should)}"
            raise CheckFailed(f"{where}: {instead} (action {index}).")
    if len(ran) < len(told):
        missing = f"{action_text(told[len(ran)])}, action {len(ran)} of its list"
        raise CheckFailed(f"{where}: rank {rank} never ran {missing}.")
    if len(ran) > len(told):
        raise CheckFailed(f"{where}: rank {rank} ran {action_text(ran[len(told)])} after the end of its list.")


def held_at_once(held: int, left: int, told: Sequence[Action], rank: int, where: str) -> None:
    """A rank let go of a micro-batch's activations in its backward: `held` at once at most, `left` after the step.

    One more than the schedule needs is let pass: a local variable may hold the last one until it is set anew.
    """
    needed = most_in_flight(told)
    if held > needed + 1:
        micro_batches = len(told) // 2
        kept = " None was let go of before the end of the step." if held == micro_batches else ""
        raise CheckFailed(
            f"{where}: rank {rank} held the activations of {held} micro-batches at once; its schedule needs "
            f"{needed}.{kept}"
        )
    if left:
        raise CheckFailed(f"{where}: rank {rank} still holds the activations of {left} micro-batches after the step.")


def boundary_traffic(
    trace, actions: Schedule, rows: Sequence[int], row_bytes: int, where: str, *, steps: int = 1
) -> None:
    """Each activation went to the rank of the next stage, each gradient to that of the stage before, once.

    rows: the size of each micro-batch; row_bytes: S * H * 4, one row's activation. Nothing else was sent, and
    nothing between stages of one rank.
    """
    p, stages = len(actions), 1 + max(stage for own in actions for _, stage, _ in own)
    expected: dict[tuple[int, int], int] = defaultdict(int)
    for own in actions:
        for op, stage, k in own:
            to = stage + 1 if op == "F" else stage - 1
            if 0 <= to < stages and to % p != stage % p:
                expected[stage % p, to % p] += steps * rows[k] * row_bytes
    for event in trace.events:
        if event.op == "send" and event.issued and (event.rank, event.peer) not in expected:
            reason = _foreign(event.rank, event.peer, expected)
            raise CheckFailed(f"{where}: rank {event.rank} sent to rank {event.peer}; {reason}.")
    for (rank, peer), wanted in expected.items():
        sent = trace.bytes_sent(rank, to=peer)
        if sent != wanted:
            raise CheckFailed(
                f"{where}: rank {rank} sent {sent} bytes to rank {peer}, {_times(sent / wanted)} the {wanted} of "
                f"the activations and gradients that cross there."
            )


def _foreign(rank: int, peer: int, expected: Mapping[tuple[int, int], int]) -> str:
    if peer == rank:
        return "stages of one rank hand over without a message"
    peers = sorted(to for source, to in expected if source == rank)
    return f"its stages' neighbours are on {ranks_text(peers)}" if peers else "its stages have no neighbours elsewhere"


def _times(ratio: float) -> str:
    return f"{short(round(ratio, 4))} times"


def _costs(seconds: Seconds) -> str:
    return listed(seconds) if isinstance(seconds, Sequence) else short(seconds)


def _spoken(action: Action) -> str:
    op, stage, micro_batch = action
    return f"{op} of stage {stage}, micro-batch {micro_batch}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
