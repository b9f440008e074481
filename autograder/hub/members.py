"""The users and groups that a running hub has, held to the list of people."""

from __future__ import annotations

import time

from autograder.course import UserError
from autograder.hub import people
from autograder.hub.api import Hub, Refused
from autograder.hub.classfile import Person
from autograder.hub.layout import Layout

STOP_S = 60.0
KINDS = {"student": "nbgrader", "instructor": "formgrade"}


def enter_hub(hub: Hub, layout: Layout, persons: list[Person]) -> None:
    """Make people users of the hub, each in the group of their role and out of the other, and read it back.

    Raises:
        UserError: the hub refused, or has something else afterwards.
    """
    hub.ask("POST", "/users", {"usernames": [person.name for person in persons]}, fine=(409,))
    for person in persons:
        for role, kind in KINDS.items():
            path = f"/groups/{kind}-{layout.spec.course}/users"
            hub.ask("POST" if person.role == role else "DELETE", path, {"users": [person.name]})
    for person in persons:
        groups = (hub.ask("GET", f"/users/{person.name}") or {}).get("groups", [])
        if not _in_step(layout, person, groups):
            raise UserError(f"The hub has {person.name} in {groups or 'no group'}: enrol them again, or see its log.")


def _in_step(layout: Layout, person: Person, groups: list[str]) -> bool:
    """Whether a person is in the group of their role, and not in the other's; further groups are the admin's own."""
    return all((f"{kind}-{layout.spec.course}" in groups) == (role == person.role) for role, kind in KINDS.items())


def forget(hub: Hub, name: str) -> None:
    """Have the hub stop a person's server and forget the person, with groups, cookies and tokens."""
    hub.ask("DELETE", f"/users/{name}/server", fine=(400, 404))
    until = time.monotonic() + STOP_S
    while True:
        try:
            hub.ask("DELETE", f"/users/{name}", fine=(404,))
            return
        except Refused as error:
            if "stopping" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0.5)


def catch_up(layout: Layout) -> list[str]:
    """Bring a hub that has just started in step with people.csv; what was mended, a sentence each.

    A hub remembers users and groups, and reading its configuration only adds to them: who was taken out, or lost a
    role, while it did not run would still be let in.
    """
    hub, everybody, mended = Hub(layout), people.active(layout), []
    for user in hub.users():
        name, person = user["name"], everybody.get(user["name"])
        if person is None:
            forget(hub, name)
            mended.append(f"{name} is not enrolled any more, and was taken out of the hub.")
        elif not _in_step(layout, person, user["groups"]):
            enter_hub(hub, layout, [person])
            mended.append(f"{name} was put into the hub's group of {person.role}s alone.")
    return mended
