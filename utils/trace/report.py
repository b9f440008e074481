"""The hang report: who is missing, what the others wait for, and the line each one is at, in words."""

from __future__ import annotations

import linecache
from pathlib import Path

from .diagnose import Fault, RankState, label, names
from .events import Event
from .matching import Pairing


def cell_name(file: str) -> str:
    """`cell In[3]` for the code of a notebook cell, the file's name otherwise."""
    try:
        from IPython import get_ipython

        shell = get_ipython()
        number = shell.compile._filename_map.get(file) if shell is not None else None
    except (ImportError, AttributeError):
        number = None
    if number is not None:
        return f"cell In[{number}]"
    return file if file.startswith("<") else Path(file).name


def place(file: str, line: int, text: str = "") -> str:
    """`line 5 of cell In[3]: dist.all_reduce(x)`."""
    source = text or linecache.getline(file, line).strip()
    return f"line {line} of {cell_name(file)}" + (f": {source}" if source else "")


def at(event: Event) -> str:
    """The line of the student's code that issued an event."""
    return place(event.file, event.line) if event.file else "code outside the notebook"


def waits(state: RankState) -> str:
    """What a rank was doing, as the end of a sentence that begins with its name."""
    if state.state == "raised" and state.waiting is not None:
        return f"lost its partners in {label(state.waiting)}, {at(state.waiting)}"
    if state.waiting is not None and state.state == "running":
        return f"waits in {label(state.waiting)}, {at(state.waiting)}"
    if state.state == "returned":
        return "has returned from the function"
    if state.state == "raised":
        return "has raised an error"
    if state.state == "gone":
        return f"is gone ({exit_text(state.code)})"
    if state.stage == "meeting":
        return "waits for all ranks to meet before the function begins"
    if state.stage == "absent":
        return "has not come to meet the others, and the function begins once all have"
    if state.at is not None:
        return f"is at {place(state.at[0], state.at[1])}"
    return "was running and waiting for nobody"


def exit_text(code: int | None) -> str:
    """An exit code in words: `exit code 3`, `SIGKILL`."""
    import signal

    if code is None:
        return "it left without a word"
    if code < 0:
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"exit code {code}"


def together(states: list[RankState]) -> list[str]:
    """One line for ranks that were doing the same: `ranks 0 and 1: waits in all_reduce #1 ...`."""
    found: dict[str, list[int]] = {}
    for state in states:
        found.setdefault(waits(state), []).append(state.rank)
    return [f"{names(ranks)} {_plural(text) if len(ranks) > 1 else text}" for text, ranks in found.items()]


def _plural(text: str) -> str:
    verb, _, rest = text.partition(" ")
    verbs = {"waits": "wait", "has": "have", "is": "are", "was": "were"}
    return f"{verbs.get(verb, verb)} {rest}".replace("its partners", "their partners")


def describe(pairing: Pairing, states: list[RankState]) -> list[str]:
    """One line for each thing that ranks wait for, the missing ranks first."""
    lines = _collective_lines(pairing, states)
    told = {s.rank for s in states if s.waiting is not None and s.waiting.collective and pairing.missing(s.waiting)}
    told |= {r for s in states if s.rank in told and s.waiting is not None for r in pairing.missing(s.waiting)}
    for state in states:
        line = _message_line(pairing, states, state)
        if state.rank not in told or len(line) > len(f"rank {state.rank} {waits(state)}"):  # it has more to say
            lines.append(line)
    return lines


def _collective_lines(pairing: Pairing, states: list[RankState]) -> list[str]:
    by_collective: dict[tuple[str, int], list[RankState]] = {}
    for state in states:
        if state.waiting is not None and state.waiting.collective and pairing.missing(state.waiting):
            by_collective.setdefault((state.waiting.group.key, pairing.order(state.waiting)), []).append(state)
    lines = []
    for (_, _), waiting in sorted(by_collective.items(), key=lambda item: item[0][1]):
        event = waiting[0].waiting
        assert event is not None
        for rank in pairing.missing(event):
            missing = states[rank]
            lines.append(f"rank {rank} never reached {label(event)}; it {waits(missing)}")
        lines += [
            f"{names(ranks)} {'waits' if len(ranks) == 1 else 'wait'} there, {where}"
            for where, ranks in _by_line(waiting)
        ]
    return lines


def _by_line(states: list[RankState]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for state in states:
        if state.waiting is not None:
            found.setdefault(at(state.waiting), []).append(state.rank)
    return list(found.items())


def _message_line(pairing: Pairing, states: list[RankState], state: RankState) -> str:
    line, event = f"rank {state.rank} {waits(state)}", state.waiting
    if event is None or event.collective or event.peer is None or event.peer >= len(states):
        return line
    partner, other = pairing.partner(event), states[event.peer]
    if partner is not None and partner.dropped:
        return (
            f"{line}; rank {event.peer} let go of its {label(partner)} ({at(partner)}) before it was done: keep what "
            f"{partner.call} returns, and wait for it"
        )
    if partner is not None:
        return line
    missing = "posted no receive for it" if event.op == "send" else "sent nothing that matches"
    reason = f"; rank {event.peer} {missing}"
    if other.over:
        reason += f" and {waits(other)}"
    return line + reason + _near_miss(pairing, event)


def _near_miss(pairing: Pairing, event: Event) -> str:
    """A message that would fit but for its peer or its tag: the usual slip."""
    if event.op != "recv":
        return ""
    for (group, sender, receiver, tag), sends in pairing.sends.items():
        taken = len(pairing.recvs.get((group, sender, receiver, tag), []))
        if group == event.group.key and receiver == event.rank and len(sends) > taken:
            if sender != event.peer:
                return f" (rank {sender} does send to rank {receiver}: was the receive meant to be from rank {sender}?)"
            if tag != event.tag:
                return f" (it sent with tag {tag}, the receive has tag {event.tag})"
    return ""


def hint(states: list[RankState]) -> str:
    """What usually helps, where the pattern is plain."""
    waiting = [s.waiting for s in states if s.waiting is not None]
    if waiting and all(e.op == "send" for e in waiting):
        return (
            "Every rank that waits is sending: a send ends only when its receive is posted. "
            "Let one side receive first, or use isend and wait later."
        )
    if waiting and all(e.op == "recv" for e in waiting):
        return (
            "Every rank that waits is receiving and nobody sends: "
            "post the send first, with isend where both sides need it."
        )
    return ""


def deadlock(pairing: Pairing, states: list[RankState]) -> str:
    """The report of a proved deadlock."""
    lines = ["every rank waits and no wait can end.", *(f"  {line}" for line in describe(pairing, states))]
    tip = hint(states)
    return "\n".join(lines + ([tip] if tip else []))


def mismatch(fault: Fault, ending: str = "") -> str:
    """The report of operations that do not fit; `ending` says what they led to."""
    lines = [fault.what + (f"; {ending}" if ending else "") + "."]
    seen: dict[str, list[int]] = {}
    for event in fault.events:
        seen.setdefault(at(event), []).append(event.rank)
    return "\n".join(lines + [f"  {names(ranks)}: {where}" for where, ranks in seen.items()])


def timeout(pairing: Pairing, states: list[RankState], limit: float) -> str:
    """The report of a run that reached its time limit."""
    head = f"the ranks did not finish within {limit:g} s."
    return "\n".join([head, *(f"  {line}" for line in describe(pairing, states))])
