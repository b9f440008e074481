"""Does a serving engine keep its promises, step by step: blocks, order, budget, progress?

A verdict gets raw snapshots, made before and after each step by a probe, and holds them to the rules one by one. A
snapshot (`picture`) is a dictionary: "running" and "waiting" (ids in order), "ref" (reference count of each block),
"free" (the free list), "requests" (by id: "tokens", how many; "computed"; "output"; "blocks"). A log has one entry a
step: "before", "planned" (after `schedule`), "batch" (pairs of id and count), "after" (after `update`). Ids are in
order of arrival. Left out: what the tensors hold; outputs show that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of

Picture = Mapping
Log = Sequence[Mapping]


def read_log(log: Sequence[Mapping]) -> list[dict]:
    """A log whose pictures came as lines of JSON, with the ids as numbers again.

    >>> read_log([{"batch": [], "after": '{"requests": {"3": {}}}'}])
    [{'batch': [], 'after': {'requests': {3: {}}}}]
    """
    return [{key: _picture(value) if isinstance(value, str) else value for key, value in e.items()} for e in log]


def _picture(line: str) -> dict:
    picture = json.loads(line)
    return {**picture, "requests": {int(name): one for name, one in picture["requests"].items()}}


def blocks_needed(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens: the quotient, rounded up.

    >>> blocks_needed(8, 4), blocks_needed(9, 4)
    (2, 3)
    """
    return -(-tokens // block_size)


def blocks_conserved(
    ref: Sequence[int], free: Sequence[int], tables: Mapping[object, Sequence[int]], where: str
) -> None:
    """Every block is free, or in as many tables as its reference count says; none is lost, none owned by mistake.

    >>> blocks_conserved([1, 0], [1], {"a": [0]}, "step 0")
    >>> blocks_conserved([0, 0], [1], {}, "step 3")
    Traceback (most recent call last):
    CheckFailed: step 3: block 0 is lost: no table holds it, and it is not in the free list (a leak).
    """
    for name, table in tables.items():
        twice = [block for block, count in Counter(table).items() if count > 1]
        if twice:
            raise CheckFailed(f"{where}: the table of {name} is {list(table)}: block {twice[0]} is in it twice.")
        foreign = [block for block in table if block not in range(len(ref))]
        if foreign:
            raise CheckFailed(f"{where}: the table of {name} has block {foreign[0]}; there are 0 to {len(ref) - 1}.")
    holders = {block: [name for name, table in tables.items() if block in table] for block in range(len(ref))}
    times = Counter(free)
    for block, owners in holders.items():
        if times[block] > 1:
            raise CheckFailed(f"{where}: block {block} is in the free list {times[block]} times: released too often?")
        if times[block] and owners:
            raise CheckFailed(
                f"{where}: block {block} is in the free list while {listed(owners)} still {_use(owners)} it: the next "
                f"allocation would overwrite it. A shared block is free only when its last user has gone."
            )
        if ref[block] != len(owners):
            held = f"{number_of(len(owners), 'table')} {'holds' if len(owners) == 1 else 'hold'} it"
            raise CheckFailed(f"{where}: block {block} has reference count {ref[block]}, but {held}.")
        if not times[block] and not owners:
            raise CheckFailed(
                f"{where}: block {block} is lost: no table holds it, and it is not in the free list (a leak)."
            )


def picture_conserved(picture: Picture, where: str) -> None:
    """`blocks_conserved` for a snapshot of a scheduler; who waits holds nothing."""
    tables = {f"request {name}": one["blocks"] for name, one in picture["requests"].items()}
    for name in picture["waiting"]:
        if picture["requests"][name]["blocks"]:
            raise CheckFailed(f"{where}: request {name} waits and still has blocks in its table.")
    blocks_conserved(picture["ref"], picture["free"], tables, where)


def within_budget(log: Log, max_tokens: int, max_running: int, what: str) -> None:
    """A step computes at most `max_tokens` tokens of at most `max_running` requests, each once, none past its end."""
    for step, entry in enumerate(log):
        where, batch = f"{what}, step {step}", entry["batch"]
        total = sum(count for _, count in batch)
        if total > max_tokens:
            raise CheckFailed(f"{where}: {total} tokens are scheduled; max_tokens is {max_tokens}.")
        running = len(entry["planned"]["running"])
        if running > max_running:
            raise CheckFailed(f"{where}: {running} requests run; max_running is {max_running}.")
        for name, times in Counter(name for name, _ in batch).items():
            if times > 1:
                raise CheckFailed(f"{where}: request {name} is in the batch {times} times.")
        for name, count in batch:
            if name not in entry["planned"]["running"]:
                raise CheckFailed(f"{where}: request {name} is in the batch and is not running (preempted after all?).")
            left = _left(entry["planned"], name)
            if not 1 <= count <= left:
                raise CheckFailed(f"{where}: request {name} gets {count} tokens; {left} are not computed yet.")


def no_stall(log: Log, what: str) -> None:
    """Who is decoding and keeps running gets its one token in every step, whatever prompts come in."""
    for step, entry in enumerate(log):
        counts = dict(entry["batch"])
        for name in _decoding(entry["before"]):
            if name in entry["planned"]["running"] and name not in counts:
                others = {other: count for other, count in counts.items() if other not in _decoding(entry["before"])}
                who = max(others, key=others.get, default=None)
                why = f" Request {who}'s prompt took {others[who]} tokens of the budget first." if others else ""
                raise CheckFailed(f"{what}, step {step}: request {name} is decoding and gets no token.{why}")


def chunks_in_order(log: Log, max_tokens: int, what: str) -> None:
    """What decoding leaves of the budget goes to prompts in order of arrival, each as much as it can use."""
    for step, entry in enumerate(log):
        counts, decoding = dict(entry["batch"]), _decoding(entry["before"])
        left = max_tokens - sum(counts.get(name, 0) for name in decoding)
        for name in sorted(name for name in entry["planned"]["running"] if name not in decoding):
            due = min(left, _left(entry["planned"], name))
            got = counts.get(name, 0)
            if got != due:
                raise CheckFailed(
                    f"{what}, step {step}: request {name} gets {number_of(got, 'token')} of its prompt; {due} fit into "
                    f"what is left of max_tokens = {max_tokens}.{_why_other(entry, name, got, due)}"
                )
            left -= got


def _why_other(entry: Mapping, name: int, got: int, due: int) -> str:
    one = entry["planned"]["requests"][name]
    if one["output"] and got == 1 < due:
        return (
            " It was preempted: its output is there, its keys and values are not. A request with an output is not "
            "always decoding; look at what is computed."
        )
    if got == 0 and entry["planned"]["requests"][name]["tokens"] > due:
        return " A prompt may be computed in chunks: what fits now, the rest in later steps."
    return ""


def first_come_first_served(log: Log, what: str) -> None:
    """Nobody is admitted before one who came earlier and still waits."""
    for step, entry in enumerate(log):
        for name in _admitted(entry):
            earlier = [other for other in entry["planned"]["waiting"] if other < name]
            if earlier:
                raise CheckFailed(
                    f"{what}, step {step}: request {name} is admitted before request {earlier[0]}, which came earlier "
                    f"and still waits. Let small ones pass, and a large one may wait for ever."
                )


def admits_what_fits(log: Log, max_tokens: int, max_running: int, block_size: int, what: str) -> None:
    """The first that waits is admitted as soon as there is a place, a token of budget and room; and not before.

    For a manager without sharing. Room: blocks for all its tokens so far, and no more than these are taken.
    """
    for step, entry in enumerate(log):
        where, planned, before = f"{what}, step {step}", entry["planned"], entry["before"]
        for name in _admitted(entry):
            one = planned["requests"][name]
            most = blocks_needed(one["tokens"], block_size)
            if len(one["blocks"]) != most:
                reserves = " Blocks for tokens that do not exist yet are taken when they come: paging is for that."
                raise CheckFailed(
                    f"{where}: request {name} is admitted with {number_of(len(one['blocks']), 'block')}; its "
                    f"{one['tokens']} tokens need {most}.{reserves if len(one['blocks']) > most else ''}"
                )
        if not planned["waiting"] or _preempted(entry):
            continue
        head = min(planned["waiting"])
        used = sum(count for _, count in entry["batch"])
        room = blocks_needed(planned["requests"][head]["tokens"], block_size) <= len(planned["free"])
        if room and used < max_tokens and len(planned["running"]) < max_running:
            places = f"{len(planned['running'])} of {max_running} places are taken"
            done = "" if before["running"] else " Nobody runs at all."
            raise CheckFailed(
                f"{where}: request {head} still waits, though {places}, {used} of {max_tokens} tokens are used, and "
                f"{number_of(len(planned['free']), 'block')} are free.{done}"
            )


def preempts_the_latest(log: Log, block_size: int, what: str) -> None:
    """Only when blocks run out, only as many as it takes, the latest arrival first; who is preempted starts anew."""
    for step, entry in enumerate(log):
        where, victims = f"{what}, step {step}", sorted(_preempted(entry))
        before, planned = entry["before"], entry["planned"]
        if not victims:
            continue
        older = [name for name in before["running"] if name not in victims and name > victims[0]]
        if older:
            raise CheckFailed(
                f"{where}: request {victims[0]} is preempted while request {older[0]}, which came later, goes on. "
                f"The latest arrival gives way; else the oldest may never end."
            )
        spared = [name for name in _decoding(before) if name not in victims[1:]]
        needs = sum(_grows(before, name, block_size) for name in spared)
        has = len(before["free"]) + sum(len(before["requests"][name]["blocks"]) for name in victims[1:])
        if needs <= has:
            raise CheckFailed(
                f"{where}: request {victims[0]} is preempted without need: {number_of(needs, 'block')} more were "
                f"needed, and {has} could be had."
            )
        for name in victims:
            one = planned["requests"][name]
            if one["computed"] or one["blocks"]:
                raise CheckFailed(
                    f"{where}: request {name} is preempted with computed = {one['computed']} and table "
                    f"{one['blocks']}; its blocks go to others, so nothing of it is in the cache any more."
                )
            if one["output"] != before["requests"][name]["output"]:
                gone = f"{where}: request {name} is preempted and its output is gone; its reader has it already."
                raise CheckFailed(gone)
            if planned["waiting"].count(name) != 1:
                raise CheckFailed(f"{where}: request {name} is preempted and does not wait: it would never end.")
        late = _admitted(entry)
        if late:
            step_text = f"a step that had to preempt request {victims[0]}"
            raise CheckFailed(f"{where}: request {late[0]} is admitted in {step_text}.")


def updated(log: Log, predicted, what: str) -> None:
    """After each step: what was scheduled is computed; who has all of it computed has one more token, no one else.

    predicted(id, position): the token that the model gave after that many tokens.
    """
    for step, entry in enumerate(log):
        counts = dict(entry["batch"])
        for name, now in entry["after"]["requests"].items():
            then = entry["planned"]["requests"][name]
            where, done = f"{what}, step {step}: request {name}", then["computed"] + counts.get(name, 0)
            if now["computed"] != done and not _left_now(entry, name):
                raise CheckFailed(f"{where} has computed = {now['computed']} after the step; {done} is right.")
            new = [predicted(name, done)] if name in counts and done == then["tokens"] else []
            if now["output"] == then["output"] + new:
                continue
            got = now["output"][len(then["output"]) :]
            if not new and got:
                raise CheckFailed(
                    f"{where} got the output {got}, though {then['tokens'] - done} of its {then['tokens']} tokens are "
                    f"not computed yet: a prediction from the middle is not an output."
                )
            raise CheckFailed(f"{where} should have got the output {new}, and got {got}.")


def leave_when_finished(log: Log, finished, what: str) -> None:
    """Who meets a stop condition runs no longer and holds no block after that step; who does not, goes on.

    finished(id, output): whether that output ends.
    """
    for step, entry in enumerate(log):
        after = entry["after"]
        for name, one in after["requests"].items():
            done, there = finished(name, one["output"]), name in after["running"] or name in after["waiting"]
            if done and (there or one["blocks"]):
                raise CheckFailed(
                    f"{what}, step {step}: request {name} has met its stop condition and "
                    f"{'still runs' if there else 'still holds blocks'}; its place and its blocks are for others."
                )
            if not done and not there and name not in entry["cancelled"]:
                raise CheckFailed(f"{what}, step {step}: request {name} is gone before it met a stop condition.")


def all_served(log: Log, what: str) -> None:
    """In the end nobody runs or waits."""
    last = log[-1]["after"]
    left = [*last["running"], *last["waiting"]]
    if left:
        raise CheckFailed(f"{what}: after {len(log)} steps request {left[0]} is still not finished.")


def computed_once(log: Log, what: str) -> None:
    """No token is computed twice, unless its request was preempted in between."""
    reached: dict[int, int] = {}
    for step, entry in enumerate(log):
        for name in _preempted(entry):
            reached[name] = 0
        for name, count in entry["batch"]:
            start = entry["planned"]["requests"][name]["computed"]
            if start < reached.get(name, 0):
                raise CheckFailed(
                    f"{what}, step {step}: request {name} computes tokens {start} to {start + count - 1} again, "
                    f"though it was not preempted."
                )
            reached[name] = start + count


def _left(picture: Picture, name: int) -> int:
    one = picture["requests"][name]
    return one["tokens"] - one["computed"]


def _decoding(picture: Picture) -> list[int]:
    """Who runs, has an output, and lacks only its last token in the cache."""
    return [name for name in picture["running"] if picture["requests"][name]["output"] and _left(picture, name) == 1]


def _admitted(entry: Mapping) -> list[int]:
    return [name for name in entry["planned"]["running"] if name not in entry["before"]["running"]]


def _preempted(entry: Mapping) -> list[int]:
    return [name for name in entry["before"]["running"] if name not in entry["planned"]["running"]]


def _grows(picture: Picture, name: int, block_size: int) -> int:
    one = picture["requests"][name]
    return max(0, blocks_needed(one["tokens"], block_size) - len(one["blocks"]))


def _left_now(entry: Mapping, name: int) -> bool:
    return name not in entry["after"]["running"]


def _use(owners: Sequence) -> str:
    return "uses" if len(owners) == 1 else "use"
