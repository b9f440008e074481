"""Burying children that ended, for the parents of many: the rank server and the grader's warm process."""

from __future__ import annotations

import os
from collections.abc import Iterator


def ended_children() -> Iterator[tuple[int, int]]:
    """The pid and exit code (negative for a signal) of each child that has ended by now; it is gone afterwards.

    Example:
        for pid, code in ended_children():
            print(pid, code)                # 4711 -9
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)
