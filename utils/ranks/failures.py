"""From the end of a run to the error a reader sees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..trace import diagnose, report
from ..trace.diagnose import Fault, RankState
from .errors import BadLaunch, Deadlock, LaunchError, LaunchInterrupted, LaunchTimeout, Mismatch, RankFailed

if TYPE_CHECKING:
    from .supervise import Outcome, Supervisor

# what gloo says on a rank whose partner is gone: a consequence, never the first failure
CONSEQUENCES = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Broken pipe",
    "Socket closed",
    "Timed out waiting",
)


def failure(boss: Supervisor, outcome: Outcome, name: str) -> LaunchError:
    """The error for a run that did not finish."""
    pairing, states = outcome.pairing, outcome.states
    if outcome.why == "deadlock":
        return Deadlock(report.deadlock(pairing, states))
    if outcome.why == "mismatch" and outcome.fault is not None:
        return Mismatch(report.mismatch(outcome.fault, "the ranks waited for each other without end"))
    if outcome.why == "timeout":
        return LaunchTimeout(report.timeout(pairing, states, boss.limit or 0) + _said(boss, []))
    if outcome.why == "interrupted":
        lines = "\n".join(f"  {line}" for line in report.together(states))
        return LaunchInterrupted(f"interrupted. Where the ranks were:\n{lines}")
    return _failed(boss, outcome, name)


def _failed(boss: Supervisor, outcome: Outcome, name: str) -> LaunchError:
    if boss.server_lost:
        return RankFailed("the rank server was killed, and all ranks with it; the next launch starts another.")
    first = first_to_fail(boss)
    error = boss.errors.get(first)
    if error is not None and error.get("not_plain"):
        return BadLaunch(_not_plain(error["not_plain"], first, name))
    found = diagnose.faults(outcome.pairing, finished=False)
    if found and (error is None or _is_consequence(error) or _raised_in(found[0], first)):
        return Mismatch(report.mismatch(found[0], _ending(boss, first, found[0])))
    states = [_with_exit(boss, s) for s in outcome.states]
    others = [f"  {line}" for line in report.together([s for s in states if s.rank != first])]
    rest = "\nThe other ranks:\n" + "\n".join(others) if others else ""
    if error is None:
        return RankFailed(_gone(boss, first, states[first], name) + rest + _said(boss, [first]), first)
    if error["kind"] == "SystemExit":
        return RankFailed(
            f"rank {first} called exit({error['text']}) in {name}; a rank must return instead." + rest, first
        )
    head = f"rank {first} raised {error['kind']}" + (f", {_at(error)}" if error["frames"] else "")
    shown = _with_cell_names(error)
    return RankFailed(f"{head}\n\n{shown}\n{rest}".rstrip(), first, shown)


def first_to_fail(boss: Supervisor) -> int:
    """The rank whose failure the others followed: its own error before a lost connection, the earliest of equals."""

    def key(r: int) -> tuple[int, int]:
        error = boss.errors.get(r)
        if error is None:
            return (0, 0)
        return (1 if _is_consequence(error) else 0, int(error["time"]))

    return min([*boss.errors, *boss.gone], key=key)


def _is_consequence(error: dict[str, Any]) -> bool:
    return any(words in error["text"] for words in CONSEQUENCES)


def _with_cell_names(error: dict[str, Any]) -> str:
    """The traceback with `cell In[3]` where Python wrote a kernel's file name."""
    text = str(error["traceback"]).rstrip()
    for file in {frame[0] for frame in error["frames"]}:
        text = text.replace(f'File "{file}"', _named(file))
    return text


def _named(file: str) -> str:
    """`cell In[3]` for a cell, as Python writes it for any other file."""
    name = report.cell_name(file)
    return name if name.startswith("cell ") else f'File "{file}"'


def _raised_in(fault: Fault, rank: int) -> bool:
    """Whether the rank's error came out of the very operation that does not fit."""
    return any(e.rank == rank and e.failed for e in fault.events)


def _at(error: dict[str, Any]) -> str:
    from ..trace.sites import is_user_file

    frames = [f for f in error["frames"] if is_user_file(f[0])] or error["frames"]
    file, line, _, text = frames[-1]
    return report.place(file, line, text)


def _with_exit(boss: Supervisor, state: RankState) -> RankState:
    return replace(state, code=boss.ranks[state.rank].exit_code)


def _gone(boss: Supervisor, rank: int, state: RankState, name: str) -> str:
    code = boss.ranks[rank].exit_code
    waiting = state.waiting
    last = f" while it waited in {diagnose.label(waiting)}, {report.at(waiting)}" if waiting is not None else ""
    if code is not None and code < 0:
        advice = " (out of memory is the usual reason)" if code == -9 else ""
        return f"rank {rank} was {report.exit_text(code)}{advice} in {name}{last}."
    return (
        f"rank {rank} ended its process in {name} ({report.exit_text(code)}){last}; "
        "a rank must return instead of calling exit or os._exit."
    )


def _ending(boss: Supervisor, rank: int, fault: Fault) -> str:
    """What a mismatch led to: `rank 1 aborted in all_reduce #1`."""
    mine = next((e for e in fault.events if e.rank == rank), fault.events[0])
    code = boss.ranks[rank].exit_code
    if rank in boss.gone:
        verb = "aborted" if code == -6 else "ended" if code is None else f"ended ({report.exit_text(code)})"
        return f"rank {rank} {verb} in {diagnose.label(mine, False)}"
    return f"rank {rank} failed in {diagnose.label(mine, False)}: {boss.errors[rank]['text'].splitlines()[0]}"


def _not_plain(what: list[str], rank: int, name: str) -> str:
    path, kind = what
    return (
        f"the value of {name} on rank {rank} cannot come back: {path} is a {kind}. Return tensors, numbers, strings, "
        "or lists, tuples, dicts and dataclasses of these."
    )


def _said(boss: Supervisor, ranks: list[int]) -> str:
    """The last lines a dead rank wrote to stderr, and what C++ ended it for, which may stand far above a stack."""
    lines = []
    for rank in ranks:
        said = boss.err[rank].text.strip().splitlines()
        reasons = [line for line in said[:-5] if line.lstrip().startswith(("terminate called", "what():"))]
        lines += [f"  rank {rank}: {line}" for line in [*reasons, *said[-5:]]]
    return "\nIts last words:\n" + "\n".join(lines) if lines else ""
