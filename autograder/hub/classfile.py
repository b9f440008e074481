"""The YAML file that describes a class on a hub: read, checked, refused in one sentence.

    course: llm                    # letters, digits, - and _
    title: Distributed LLM training
    labs: [lab01]                  # out so far: what students' `utils` may hold follows from it
    people:
      - {name: ada, role: student, first: Ada, last: Lovelace, email: ada@example.org}
      - {name: grace, role: instructor}
    students: roster.csv           # optional: more students, columns name,first,last,email
    exchange: exchange             # a folder; relative to the class's
    image: here                    # servers run on this machine; a container image is Kubernetes' business
    users: auto                    # each person a user id of their own, where the hub runs as root; or one
    address: {host: 127.0.0.1, public: 8000, hub: 8081, proxy: 8001, grader: 8082}
    login: {kind: password}        # or oauth, lti: deploy/README.md
    lectures: notebooks            # what the pull link brings: ours, or a git address
    limits: {memory_mib: 4096, processes: 1024, tmp_mib: 1024, idle_minutes: 60, servers: 40}
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from autograder.course import UserError

ROLES = ("student", "instructor")
LOGINS = ("password", "oauth", "lti")
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,31}")  # no + and no *, by which nbgrader takes hand-ins apart
RESERVED = ("root", "nobody", "jovyan", "grader")


@dataclass(frozen=True)
class Person:
    """Somebody of a class. Raises UserError for a name that a hub, a path or nbgrader would trip over.

    >>> Person("ada").role
    'student'
    """

    name: str
    role: str = "student"
    first: str = ""
    last: str = ""
    email: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in RESERVED:
            raise UserError(
                f"{self.name!r} cannot be a user name here: 1 to 32 of a-z, 0-9, `.`, `_` and `-`, a letter first, "
                f"and none of {', '.join(RESERVED)}."
            )
        if self.role not in ROLES:
            raise UserError(f"{self.name} has the role {self.role!r}; there are {' and '.join(ROLES)}.")


@dataclass(frozen=True)
class Address:
    """Where the hub listens: the public side of its proxy, and three ports that only this machine uses."""

    host: str = "127.0.0.1"
    public: int = 8000
    hub: int = 8081
    proxy: int = 8001
    grader: int = 8082

    def __post_init__(self) -> None:
        wrong = [port for port in self.ports if not (isinstance(port, int) and 0 < port < 65536)]
        if wrong or len(set(self.ports)) < 4:
            raise UserError(f"address has the ports {self.ports}: give four different ones from 1 to 65535.")

    @property
    def ports(self) -> tuple[int, int, int, int]:
        return (self.public, self.hub, self.proxy, self.grader)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.public}/"


@dataclass(frozen=True)
class Limits:
    """What one person's server may take.

    memory_mib is shown to its owner and enforced only by a container or a cgroup around it; processes is enforced
    where each person has a user id; tmp_mib bounds /tmp and /dev/shm each; servers is how many may run at once.
    """

    memory_mib: int = 4096
    processes: int = 1024
    tmp_mib: int = 1024
    idle_minutes: int = 60
    servers: int = 40

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"limits has {one.name}: {value!r}; give a whole number from 1.")


@dataclass(frozen=True)
class ClassFile:
    """A class as its YAML file has it; see the module."""

    course: str
    title: str = "Distributed LLM training and inference"
    labs: tuple[str, ...] = ()
    people: tuple[Person, ...] = ()
    exchange: str = "exchange"
    image: str = "here"
    users: str = "auto"
    address: Address = field(default_factory=Address)
    login: dict[str, Any] = field(default_factory=lambda: {"kind": "password"})
    lectures: str = "notebooks"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{1,30}", self.course):
            raise UserError(f"course is {self.course!r}: 2 to 31 of a-z, 0-9, `_` and `-`, a letter first.")
        names = [person.name for person in self.people]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UserError(f"{', '.join(twice)} stands twice among the people: give each a name of their own.")
        if self.users not in ("auto", "one"):
            raise UserError(f"users is {self.users!r}: auto (a user id each, where the hub runs as root) or one.")
        if self.image != "here":
            raise UserError(f"image is {self.image!r}: here is the only one on one machine; see deploy/README.md.")
        if self.login.get("kind") not in LOGINS:
            raise UserError(f"login has the kind {self.login.get('kind')!r}; there are {', '.join(LOGINS)}.")


def read_class(path: Path) -> ClassFile:
    """Read a class's YAML file.

    Raises:
        UserError: it cannot be read, has an unknown key, or a value that cannot be.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"The class file {path} cannot be read ({error}).") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("course"), str):
        raise UserError(f"The class file {path} names no course: begin it with `course: llm`.")
    roster = raw.pop("students", None)
    raw["people"] = [_make(Person, one, "people") for one in raw.get("people") or []]
    if roster:
        raw["people"] += read_roster(path.parent / roster)
    raw["people"] = tuple(raw["people"])
    raw["labs"] = tuple(raw.get("labs") or ())
    for name, kind in (("address", Address), ("limits", Limits)):
        if name in raw:
            raw[name] = _make(kind, raw[name], name)
    return _make(ClassFile, raw, str(path))


def _make(kind: type, raw: Any, where: str) -> Any:
    known = [one.name for one in fields(kind)]
    if not isinstance(raw, dict):
        raise UserError(f"{where} has {raw!r} where `key: value` pairs belong: {', '.join(known)}.")
    if unknown := [key for key in raw if key not in known]:
        raise UserError(f"{where} has {unknown[0]!r}, which is not one of {', '.join(known)}.")
    try:
        return kind(**raw)
    except TypeError as error:
        raise UserError(f"{where}: {error}.") from None


def read_roster(path: Path) -> list[Person]:
    """Students of a CSV file with the columns name, and if at hand first, last, email.

    Raises:
        UserError: it cannot be read, has no column `name`, or a name that cannot be one.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The roster {path} cannot be read ({error}).") from None
    if not rows or "name" not in rows[0]:
        raise UserError(f"The roster {path} has no column `name`, or no row: its first line is name,first,last,email.")
    wanted = ("name", "first", "last", "email")
    return [Person(**{key: (row.get(key) or "").strip() for key in wanted}) for row in rows]
