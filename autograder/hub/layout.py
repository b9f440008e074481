"""Where things are in a class's folder, and who owns them.

    class.yaml  jupyterhub_config.py      what `init` read and what it wrote
    people.csv                            who is enrolled, with their user ids
    secrets/    hub/                      passwords (hashed), tokens, the hub's database: the hub's alone
    log/                                  the hub's log
    config/ROLE/                          Jupyter settings of students, instructors and the grading service
    student/    lectures.git/             `utils` as students get it; what the pull link brings
    exchange/COURSE/outbound/             releases: students see them read-only
    exchange/COURSE/inbound/NAME/         what NAME hands in; nobody else's server sees it
    exchange/COURSE/feedback/NAME/        what is released to NAME
    homes/NAME/                           a person's files
    course/                               gradebook, hand-ins, graded copies: the grader's alone
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from autograder.course import REPO, Course, UserError
from autograder.hub.classfile import ClassFile, read_class

FIRST_UID = 500_000  # above people and the containers of the first six of them, below what systemd-nspawn takes
GRADER = "grader"


@dataclass(frozen=True)
class Layout:
    """The paths of a class's folder.

    >>> Layout(Path("/srv/llm")).home("ada")
    PosixPath('/srv/llm/homes/ada')
    """

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Layout:
        """The layout of a folder that `init` made; UserError where it did not."""
        folder = folder.expanduser().resolve()
        if not (folder / "class.yaml").is_file():
            raise UserError(f"{folder} is no class's folder: make it with `python -m autograder hub init CLASS.yaml`.")
        return cls(folder)

    @cached_property
    def spec(self) -> ClassFile:
        return read_class(self.folder / "class.yaml")

    @property
    def config(self) -> Path:
        return self.folder / "jupyterhub_config.py"

    @property
    def people(self) -> Path:
        return self.folder / "people.csv"

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def hub(self) -> Path:
        return self.folder / "hub"

    @property
    def log(self) -> Path:
        return self.folder / "log" / "hub.log"

    @property
    def student(self) -> Path:
        """The students' bundle: its `utils` is what their cells import."""
        return self.folder / "student"

    @property
    def lectures(self) -> Path:
        return self.folder / "lectures.git"

    @property
    def data(self) -> Path:
        return self.folder / "course"

    @property
    def course(self) -> Course:
        """The course as the grader sees it: sources of the repository, releases and marks of this class."""
        return Course(releases=self.data / "release", data=self.data)

    @property
    def exchange(self) -> Path:
        return self.folder / self.spec.exchange

    def inbound(self, name: str) -> Path:
        return self.exchange / self.spec.course / "inbound" / name

    def feedback(self, name: str) -> Path:
        return self.exchange / self.spec.course / "feedback" / name

    @property
    def outbound(self) -> Path:
        return self.exchange / self.spec.course / "outbound"

    def home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def settings(self, role: str) -> Path:
        """The folder of Jupyter settings for a role: student, instructor or grader."""
        return self.folder / "config" / role

    def secret(self, name: str) -> str:
        return (self.secrets / name).read_text(encoding="utf-8").strip()

    @cached_property
    def separate(self) -> bool:
        """Whether each person has a user id of their own: the hub is root's, and others can reach its programs."""
        return self.spec.users == "auto" and os.getuid() == 0 and not closed_to_others(self.folder)

    @property
    def grader_uid(self) -> int:
        return FIRST_UID if self.separate else os.getuid()

    def run_as(self, uid: int) -> dict[str, Any]:
        """What subprocess is told to start a process as this user id, where the hub may."""
        return {"user": uid, "group": uid, "extra_groups": []} if self.separate else {}


def closed_to_others(folder: Path) -> str:
    """The first folder that another user could not pass on the way to what a server needs; "" where all is open."""
    for needed in (folder.parent, REPO, Path(sys.executable)):
        for path in (needed.resolve(), *needed.resolve().parents):
            if path.exists() and not path.stat().st_mode & stat.S_IXOTH:
                return str(path)
    return ""
