"""`hub enrol`: one command after which a person can log in, fetch, submit and be marked, or an error.

A person is in four places: people.csv (who may log in, and their folders), the hub's users, the hub's group of their
role, and the gradebook. nbgrader's own command answers 0 where the hub refused, and its web form skips the hub.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autograder.course import UserError
from autograder.hub import people
from autograder.hub.api import Hub
from autograder.hub.classfile import Person
from autograder.hub.gradebook import enter
from autograder.hub.init import enrol_in_folder
from autograder.hub.layout import Layout
from autograder.hub.members import enter_hub, forget
from autograder.hub.passwords import Passwords
from autograder.hub.shield import write_names

Tell = Callable[[dict[str, str]], None]


def asked(
    layout: Layout, names: list[str], role: str | None, about: dict[str, str], roster: list[Person]
) -> list[Person]:
    """The people that a command names; what it leaves out of somebody known stays as it was.

    Raises:
        UserError: a name cannot be one or stands twice, or the roster of students has an instructor in it.
    """
    known = people.enrolled(layout)
    teaching = [one.name for one in roster if one.name in known and known[one.name].role != one.role]
    if teaching := [name for name in teaching if known[name].active]:
        raise UserError(
            f"{', '.join(teaching)} is an instructor here and stands in the roster of students: take the line out, or "
            "say `hub enrol FOLDER NAME --role student` first."
        )
    people_asked = list(roster)
    for name in names:
        before = known.get(name)
        people_asked.append(Person(name, role or (before.role if before else "student"), **about))
    every = [one.name for one in people_asked]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UserError(f"{', '.join(twice)} was named twice: nobody was enrolled; name each person once.")
    return [_kept(one, known.get(one.name)) for one in people_asked]


def _kept(person: Person, before: Person | None) -> Person:
    if before is None:
        return person
    return replace(person, **{key: getattr(person, key) or getattr(before, key) for key in ("first", "last", "email")})


def enrol(layout: Layout, newcomers: list[Person], tell: Tell) -> bool:
    """Enrol people everywhere; whether a running hub was told.

    tell: called with the passwords given to new people, before anything that can be refused: they are kept nowhere.

    Raises:
        UserError: a step was refused; what was entered before it stays, and the command can be repeated.
    """
    tell(enrol_in_folder(layout, newcomers))
    write_names(layout)
    hub = Hub(layout)
    told = hub.runs()
    if told:
        enter_hub(hub, layout, newcomers)
    enter(layout, [person for person in newcomers if person.role == "student"])
    return told


def renew(layout: Layout, names: list[str], tell: Tell) -> bool:
    """Give people new passwords, end their servers and log them out everywhere; whether a running hub was told.

    Raises:
        UserError: somebody is not enrolled, the class has no passwords of its own, or the hub refused.
    """
    known = people.active(layout)
    if layout.spec.login["kind"] != "password":
        raise UserError(f"People log in by {layout.spec.login['kind']} here: their password is not the hub's to give.")
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"Not enrolled: {', '.join(unknown)}; nobody got a new password.")
    passwords = Passwords(layout.secrets / "passwords.json")
    tell({name: passwords.give(name) for name in names})
    hub = Hub(layout)
    if not hub.runs():
        return False
    for name in names:
        forget(hub, name)
    enter_hub(hub, layout, [known[name] for name in names])
    return True


def leave(layout: Layout, names: list[str]) -> bool:
    """Take people out: no login, no group, their server stopped. Files and marks stay. Whether a hub was told.

    Raises:
        UserError: somebody is not enrolled, or the hub refused.
    """
    known = people.active(layout)
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"Not enrolled: {', '.join(unknown)}; nobody was taken out.")
    people.write(layout, people.enrolled(layout) | {name: replace(known[name], active=False) for name in names})
    hub = Hub(layout)
    if not hub.runs():
        return False
    for name in names:
        forget(hub, name)
    return True
