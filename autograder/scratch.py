"""Folders for the time of a task, named after their process: what a killed one left, the next one removes.

The number of a process means something only where it was given: several machines or containers may share the folder.
So a name says where, too, and what others left elsewhere goes only when no task can last that long.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
import zlib
from pathlib import Path

ELSEWHERE_S = 2 * 86400.0  # after this much time what another machine left is of nobody any more


def scratch(kind: str, within: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A new folder `KIND-PID-WHERE-...` where the system has such, or `within` another; left-over ones of KIND go.

    Example:
        with scratch("release") as folder:      # /tmp/release-4711-5a0c11e9-x1y2
            ...
    """
    sweep(kind, within)
    return tempfile.TemporaryDirectory(prefix=f"{kind}-{os.getpid()}-{_where()}-", dir=within)


def sweep(kind: str, within: Path | None = None) -> None:
    """Remove this user's folders of a kind whose processes are gone."""
    place = within or Path(tempfile.gettempdir())
    for path in place.glob(f"{kind}-[0-9]*-*"):
        named = re.match(rf"{re.escape(kind)}-(\d+)-([0-9a-f]{{8}})-", path.name)
        with contextlib.suppress(OSError):
            if named and path.lstat().st_uid == os.getuid() and not path.is_symlink() and _left(path, *named.groups()):
                shutil.rmtree(path, ignore_errors=True)


def _left(path: Path, pid: str, where: str) -> bool:
    if where == _where():
        return not _runs(int(pid))
    return path.lstat().st_mtime < time.time() - ELSEWHERE_S


def _where() -> str:
    """Eight digits for the machine and, on Linux, the space in which processes are numbered."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{zlib.crc32(f'{socket.gethostname()} {space}'.encode()):08x}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's: the number was given anew
    return True
