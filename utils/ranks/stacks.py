"""What the system tells of a running rank: whether it sleeps, and which line of the student's code it is at."""

from __future__ import annotations

import os
import re

from ..trace.sites import is_user_file


def asleep(pid: int, main_only: bool) -> bool:
    """True when the process's main thread, or every thread of it, sleeps (or the system does not tell)."""
    try:
        tasks = [str(pid)] if main_only else os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "R":
                    return False
    except OSError:
        return True
    return True


_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>\S+)')


def innermost(text: str) -> tuple[str, int, str] | None:
    """The student's innermost frame in what faulthandler wrote, the main thread's where there are several."""
    main = re.split(r"\n\n", text)[-1]
    for match in _FRAME.finditer(main):
        if is_user_file(match["file"]):
            return match["file"], int(match["line"]), match["name"]
    return None
