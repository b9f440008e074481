"""Pairing what ranks issued: the k-th send from a to b with the k-th recv on b from a, the k-th collective of a group.

Per (group, sender, receiver, tag) messages arrive in the order they were sent, and the collectives of a group pair up
by their number; both are what gloo and nccl do, whether or not the ranks meant it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .events import Event, Group

Key = tuple[str, int, int, int]


@dataclass
class Pairing:
    """Sends and receives by channel, receives from any source by receiver, collectives by group and rank."""

    sends: dict[Key, list[Event]]
    recvs: dict[Key, list[Event]]
    any_recvs: dict[tuple[str, int, int], list[Event]]
    collectives: dict[str, dict[int, list[Event]]]
    groups: dict[str, Group]

    def partner(self, event: Event) -> Event | None:
        """The event at the other end of a send or recv, if it was issued."""
        key, mine, theirs = self._channel(event)
        at = next(i for i, e in enumerate(mine[key]) if e is event)
        others = theirs.get(key, [])
        return others[at] if at < len(others) else None

    def _channel(self, event: Event) -> tuple[Key, dict[Key, list[Event]], dict[Key, list[Event]]]:
        if event.op == "send":
            return (event.group.key, event.rank, event.peer or 0, event.tag), self.sends, self.recvs
        return (event.group.key, event.peer or 0, event.rank, event.tag), self.recvs, self.sends

    def loose_sends(self, group: str, receiver: int, tag: int) -> int:
        """Sends to `receiver` that neither a named receive nor a receive from any source has taken yet."""
        sends = sum(len(v) for k, v in self.sends.items() if (k[0], k[2], k[3]) == (group, receiver, tag))
        named = sum(len(v) for k, v in self.recvs.items() if (k[0], k[2], k[3]) == (group, receiver, tag))
        return sends - named - len([e for e in self.any_recvs.get((group, receiver, tag), []) if e.end is not None])

    def can_end(self, event: Event) -> bool:
        """Whether what was issued so far is enough for `event` to complete."""
        if event.limited or not event.group.ranks:
            return True
        if event.op == "recv" and event.peer is None:
            return self.loose_sends(event.group.key, event.rank, event.tag) > 0
        if not event.collective:
            wildcard = event.op == "send" and self.any_recvs.get((event.group.key, event.peer or 0, event.tag))
            other = self.partner(event)
            return bool(wildcard) or (other is not None and not other.dropped)
        return not self.missing(event)

    def order(self, event: Event) -> int:
        """How many collectives of its group the rank had issued with this one: 1 for its first."""
        return 1 + next(i for i, e in enumerate(self.collectives[event.group.key][event.rank]) if e is event)

    def missing(self, event: Event) -> list[int]:
        """Members of the event's group that have not issued the collective that pairs with it."""
        at, issued = self.order(event), self.collectives[event.group.key]
        return [r for r in event.group.ranks if len(issued.get(r, [])) < at]


def pair(events: list[Event]) -> Pairing:
    """Pair up the events of all ranks; refused operations never left their rank and are left out."""
    result = Pairing(
        defaultdict(list), defaultdict(list), defaultdict(list), defaultdict(lambda: defaultdict(list)), {}
    )
    for event in sorted((e for e in events if e.issued), key=lambda e: (e.rank, e.seq)):
        key = event.group.key
        result.groups[key] = event.group
        if event.collective:
            result.collectives[key][event.rank].append(event)
        elif event.op == "send":
            result.sends[key, event.rank, event.peer or 0, event.tag].append(event)
        elif event.peer is None:
            result.any_recvs[key, event.rank, event.tag].append(event)
        else:
            result.recvs[key, event.peer, event.rank, event.tag].append(event)
    return result
