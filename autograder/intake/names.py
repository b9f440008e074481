"""Whose hand-in a file is: the names that people, learning platforms and nbgrader's exchange give to files.

    Ada.ipynb, lab01_Ada (1).ipynb              a loose file, named after the student
    smithjohn_LATE_340934_208490284_lab01.ipynb  Canvas: name, mark of lateness, user, attachment, the student's file
    Ada Smith_12345_assignsubmission_file_      Moodle: a folder (or the beginning of a file's name)
    ada+lab01_allreduce+2025-03-03 10:00:00 UTC nbgrader's exchange: a folder
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime

from nbgrader.utils import parse_utc

CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<attachment>\d+)_(?P<file>.+)", re.DOTALL)
MOODLE = re.compile(r"(?P<name>.+?)_(?P<user>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.DOTALL)
EXCHANGE = re.compile(r"(?P<name>[^+]+)\+(?P<lab>[^+]+)\+(?P<when>[^+]+)(?:\+.*)?", re.DOTALL)
COPY_NUMBER = re.compile(r"(?:\s*\((\d+)\)|\s*-\s*Copy(\d*)|-(\d{1,2}))$")
LONGEST = 100


@dataclass(frozen=True)
class Owner:
    """What a file's or folder's name says: the student, the platform's id, lateness, when, and which attempt.

    Example:
        >>> owner_of("smithjohn_LATE_340934_208490284_lab01-1.ipynb").platform
        'canvas 340934'
    """

    name: str
    platform: str = ""
    marked_late: bool = False
    when: datetime | None = None
    attempt: int = 0
    file: str = ""


def owner_of(name: str) -> Owner | None:
    """Whose a file or folder is, by one of the platforms' conventions; None where it follows none of them."""
    if match := MOODLE.fullmatch(name):
        return Owner(match["name"], f"moodle {match['user']}", file=match["file"] or "")
    if match := EXCHANGE.fullmatch(name):
        when = moment(match["when"])
        return Owner(match["name"], when=when, file=match["lab"]) if when else None
    if match := CANVAS.fullmatch(name):
        late, number = bool(match["late"]), int(match["attachment"])
        return Owner(match["name"], f"canvas {match['user']}", late, attempt=number, file=match["file"])
    return None


def loose_owner(stem: str, lab: str, otherwise: str) -> Owner:
    """Whose a loose notebook is: its name without the lab's; `otherwise` where nothing is left of it."""
    number = COPY_NUMBER.search(stem)
    attempt = int(next(filter(None, number.groups()), "1")) if number else 0
    name = stem[: number.start()] if number else stem
    for part in (lab, lab.split("_")[0]):
        name = re.sub(rf"(?i)(?:^|(?<=[\W_])){re.escape(part)}(?=$|[\W_])", "", name)
    return Owner(name.strip(" _-.") or otherwise, attempt=attempt)


def copy_free(stem: str) -> str:
    """A file's stem without the number that a browser or a second upload puts behind it.

    Example:
        >>> copy_free("lab01 (1)"), copy_free("lab01-2"), copy_free("lab01-Copy1")
        ('lab01', 'lab01', 'lab01')
    """
    return COPY_NUMBER.sub("", stem)


def of_another_lab(stem: str, lab: str) -> bool:
    """Whether a file is named after a lab that is not this one."""
    named = re.match(r"(?i)lab\d+", stem)
    return bool(named) and named[0].lower() != lab.split("_")[0].lower()


def moment(text: str) -> datetime | None:
    """A time as nbgrader's exchange writes it, in UTC; None where the text is no time."""
    text = re.sub(r"(\d{4}-\d\d-\d\d)[ _T](\d\d)[-:](\d\d)[-:](\d\d)", r"\1 \2:\3:\4", text.strip())
    try:
        return parse_utc(text).replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None


def safe_name(name: str) -> str:
    """A student's name as nbgrader can take it: without the characters that it reads as patterns or paths.

    Example:
        >>> safe_name("O'Neil, Ann"), safe_name("../a+b")
        ("O'Neil, Ann", '_a_b')
    """
    name = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8"))
    name = "".join("_" if unicodedata.category(c)[0] == "C" else c for c in name)
    name = re.sub(r"[/\\*?\[\]{}+]", "_", name).strip().lstrip(".").strip()
    return name[:LONGEST].strip() or "unnamed"
