"""`hub enrol`: one command after which a person can log in, fetch, submit and be marked, or an error.

A person is in four places: people.csv (who may log in, and their folders), the hub's users, the hub's group of their
role, and the gradebook. nbgrader's own command answers 0 where the hub refused, and its web form skips the hub.
"""

from __future__ import annotations

from dataclasses import replace

from autograder.course import UserError
from autograder.hub import people
from autograder.hub.api import Hub
from autograder.hub.classfile import Person
from autograder.hub.gradebook import enter
from autograder.hub.init import enrol_in_folder
from autograder.hub.layout import Layout
from autograder.hub.shield import write_names


def enrol(layout: Layout, newcomers: list[Person]) -> tuple[dict[str, str], bool]:
    """Enrol people everywhere; the passwords given to new ones, and whether a running hub was told.

    Raises:
        UserError: a step was refused; what was entered before it stays, and the command can be repeated.
    """
    given = enrol_in_folder(layout, newcomers)
    write_names(layout)
    hub = Hub(layout)
    told = hub.runs()
    if told:
        hub.ask("POST", "/users", {"usernames": [person.name for person in newcomers]}, fine=(409,))
        for person in newcomers:
            _group(hub, layout, person)
        _check(hub, layout, newcomers)
    enter(layout, [person for person in newcomers if person.role == "student"])
    return given, told


def _group(hub: Hub, layout: Layout, person: Person) -> None:
    """Put a person into the group of their role and out of the other."""
    for kind, role in (("nbgrader", "student"), ("formgrade", "instructor")):
        path = f"/groups/{kind}-{layout.spec.course}/users"
        hub.ask("POST" if person.role == role else "DELETE", path, {"users": [person.name]})


def _check(hub: Hub, layout: Layout, newcomers: list[Person]) -> None:
    """Read back what the hub has now."""
    for person in newcomers:
        kind = "formgrade" if person.role == "instructor" else "nbgrader"
        groups = (hub.ask("GET", f"/users/{person.name}") or {}).get("groups", [])
        if f"{kind}-{layout.spec.course}" not in groups:
            raise UserError(f"The hub has {person.name} in {groups or 'no group'}: enrol them again, or see its log.")


def leave(layout: Layout, names: list[str]) -> bool:
    """Take people out: no login, no group, their server stopped. Files and marks stay. Whether a hub was told.

    Raises:
        UserError: somebody is not enrolled, or the hub refused.
    """
    known = people.enrolled(layout)
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"Not enrolled: {', '.join(unknown)}.")
    people.write(layout, known | {name: replace(known[name], active=False) for name in names})
    hub = Hub(layout)
    if not hub.runs():
        return False
    for name in names:
        hub.ask("DELETE", f"/users/{name}/server", fine=(400, 404))
        hub.ask("DELETE", f"/users/{name}", fine=(404,))  # with it go its groups, cookies and tokens
    return True
