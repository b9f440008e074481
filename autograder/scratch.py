"""Folders for the time of a task, named after their process: what a killed one left, the next one removes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path


def scratch(kind: str, within: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A new folder `KIND-PID-...` in the system's folder for such, or `within` another; left-over ones of KIND go.

    Example:
        with scratch("release") as folder:      # /tmp/release-4711-x1y2
            ...
    """
    sweep(kind, within)
    return tempfile.TemporaryDirectory(prefix=f"{kind}-{os.getpid()}-", dir=within)


def sweep(kind: str, within: Path | None = None) -> None:
    """Remove this user's folders of a kind whose processes are gone."""
    place = within or Path(tempfile.gettempdir())
    for path in place.glob(f"{kind}-[0-9]*-*"):
        named = re.match(rf"{re.escape(kind)}-(\d+)-", path.name)
        with contextlib.suppress(OSError):
            if named and path.lstat().st_uid == os.getuid() and not path.is_symlink() and not _runs(int(named[1])):
                shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's: the number was given anew
    return True
