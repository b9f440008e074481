"""Who is enrolled: one CSV file, with each person's role and user id. User ids are given once and never again."""

from __future__ import annotations

import csv
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from autograder.hub.classfile import Person
from autograder.hub.layout import FIRST_UID, Layout

COLUMNS = ("name", "role", "uid", "active", "first", "last", "email")


@dataclass(frozen=True)
class Enrolled(Person):
    """A person with a user id; `active` is False for one who has left, whose id stays theirs."""

    uid: int = 0
    active: bool = True

    @property
    def group(self) -> str:
        """The hub's group prefix for the role: nbgrader's names."""
        return "formgrade" if self.role == "instructor" else "nbgrader"


def enrolled(layout: Layout) -> dict[str, Enrolled]:
    """Everybody who ever was enrolled, by name."""
    if not layout.people.is_file():
        return {}
    with layout.people.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["name"]: Enrolled(**{**row, "uid": int(row["uid"]), "active": row["active"] == "yes"}) for row in rows
    }


def active(layout: Layout) -> dict[str, Enrolled]:
    """Those who may log in."""
    return {name: person for name, person in enrolled(layout).items() if person.active}


def add(layout: Layout, people: list[Person]) -> list[Enrolled]:
    """Enrol people, or bring their entries up to date; the new entries."""
    known = enrolled(layout)
    free = 1 + max((person.uid for person in known.values()), default=FIRST_UID)
    added = []
    for person in people:
        uid = known[person.name].uid if person.name in known else free
        free += uid == free
        plain = {name: getattr(person, name) for name in ("name", "role", "first", "last", "email")}
        added.append(Enrolled(**plain, uid=uid))
    write(layout, known | {person.name: person for person in added})
    return added


def write(layout: Layout, people: dict[str, Enrolled]) -> None:
    """Write the file at once: a reader sees the old one or the new one."""
    handle, part = tempfile.mkstemp(dir=layout.folder, prefix=".people-")
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for person in people.values():
            writer.writerow(asdict(person) | {"active": "yes" if person.active else "no"})
    os.replace(part, layout.people)


def places(layout: Layout, person: Enrolled) -> None:
    """Make a person's folders, theirs and the grader's, with the permissions that keep others out.

    The home is the person's alone. What they hand in is theirs and the grader's group's; feedback is the grader's
    and theirs to read.
    """
    inbound, feedback = layout.inbound(person.name), layout.feedback(person.name)
    wanted = (
        (layout.home(person.name), 0o700, person.uid, person.uid),
        (inbound, 0o2770, person.uid, layout.grader_uid),
        (feedback, 0o750, layout.grader_uid, person.uid),
    )
    for path, mode, uid, gid in wanted:
        path.mkdir(parents=True, exist_ok=True)
        own(layout, path, uid, gid)
        path.chmod(mode)


def own(layout: Layout, path: Path, uid: int, gid: int | None = None) -> None:
    """Give a path to a user, where people have users of their own."""
    if layout.separate:
        os.chown(path, uid, uid if gid is None else gid)
