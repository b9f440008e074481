"""nbgrader's exchange with a folder of one's own for each student: what is collected is what its student handed in.

In nbgrader's own exchange all hand-ins lie in one folder that everybody writes, under names that say whose they are:
one student can hand in as another, and who learns a name can alter what lies there. Here a student's server sees one
folder, `inbound/NAME`, as `inbound`; the grader takes from it what bears that name, and copies plain files only (a
link in a hand-in would have the grader read its own secrets for the student). Feedback goes back the same way.

The time of a hand-in is still the one that the student's nbgrader wrote.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseAssignment, ExchangeReleaseFeedback

MOST_BYTES = 64 * 2**20
MOST_FILES = 500


class Owned:
    """Checks an exchange's folder by user id: the grader need not have a name on this machine."""

    def ensure_directory(self, path: str, mode: int) -> None:
        folder = Path(path)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(mode)
        elif folder.stat().st_uid != os.getuid():
            self.fail(f"You don't own the directory: {path}")

    def ensure_root(self) -> None:
        """The root is made by `hub init`; nbgrader would open it to everybody."""
        if not os.access(self.root, os.W_OK):
            self.fail(f"The exchange {self.root} cannot be written: run `python -m autograder hub doctor`.")


class ReleaseAssignment(Owned, ExchangeReleaseAssignment):
    """nbgrader's, in an exchange made by `hub init`."""


class ReleaseFeedback(Owned, ExchangeReleaseFeedback):
    """Feedback goes into each student's own folder."""

    def copy_files(self) -> None:
        whole, chosen = self.dest_path, self.coursedir.student_id
        for folder in sorted(Path(whole).iterdir()):
            if chosen not in ("*", "", folder.name):
                continue
            self.dest_path = str(folder)
            self.src_path = self.coursedir.format_path(
                self.coursedir.feedback_directory, folder.name, self.coursedir.assignment_id
            )
            super().copy_files()
        self.dest_path = whole


class Collect(Owned, ExchangeCollect):
    """Takes each student's newest hand-in, or the newest in time, from the student's own folder."""

    def init_src(self) -> None:
        if not self.coursedir.course_id:
            self.fail("No course id specified. Re-run with --course flag.")
        self.check_owner = False  # the folder says whose it is
        self.inbound_path = os.path.join(self.root, self.coursedir.course_id, "inbound")
        chosen = self.coursedir.student_id
        folders = [f for f in sorted(Path(self.inbound_path).iterdir()) if chosen in ("*", "", f.name)]
        self.duedate = self._due()
        self.src_records = [record for folder in folders if (record := self._newest(folder))]

    def _due(self) -> Any:
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
            try:
                return gradebook.find_assignment(self.coursedir.assignment_id).duedate
            except MissingEntry:
                return None

    def _newest(self, folder: Path) -> dict[str, Any] | None:
        records = []
        for path in folder.iterdir():
            name, _, rest = path.name.partition("+")
            if not rest.startswith(f"{self.coursedir.assignment_id}+"):
                continue
            if name != folder.name:
                self.log.warning("%s lies among the hand-ins of %s: not collected", path.name, folder.name)
                continue
            records.append({**self._path_to_record(str(path)), "filename": f"{folder.name}/{path.name}"})
        in_time = [r for r in records if self.before_duedate and self.duedate and r["timestamp"] <= self.duedate]
        return max(in_time or records, key=lambda record: record["timestamp"], default=None)

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        for left in copy_plain(Path(src), Path(dest)):
            self.log.warning("%s: %s", src, left)


def copy_plain(source: Path, target: Path) -> list[str]:
    """Copy a folder's plain files and nothing else, following no link; what was left out, and why.

    A file that changes into a link meanwhile is refused as well: each is opened under the folder that was listed.
    """
    left, files, room = [], 0, MOST_BYTES
    for folder, _, names, handle in os.fwalk(source, follow_symlinks=False):
        place = target / os.path.relpath(folder, source)
        place.mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            try:
                content = _plain(name, handle, room)
            except OSError as error:
                left.append(f"{name} was left out ({error.strerror})")
                continue
            files += 1
            if content is None or files > MOST_FILES:
                left.append(f"{name} was left out (no plain file, or beyond {MOST_FILES} files and {MOST_BYTES} bytes)")
                continue
            room -= len(content)
            (place / name).write_bytes(content)
    return left


def _plain(name: str, folder: int, room: int) -> bytes | None:
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(file.fileno())
        content = file.read(room + 1) if stat.S_ISREG(found.st_mode) else b""
    return content if stat.S_ISREG(found.st_mode) and len(content) <= room else None
