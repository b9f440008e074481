"""`hub backup FOLDER FILE` and `hub restore FILE FOLDER`: a class in one private file, while it goes on, and back.

Databases are copied by SQLite's own backup, each as it stood at one moment; a gradebook on a server is copied into the
archive as a file. Other files are read as they are. People's folders hold what people like: links are kept as links
and followed neither way, sockets and pipes are left out.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from autograder.course import UserError
from autograder.gradebook import is_file
from autograder.hub.init import render
from autograder.hub.layout import Layout
from autograder.hub.settings import run_as_grader, write_settings
from autograder.hub.shield import write_names

NOTE = "backup.json"
FORM = 1
SERVER_COPY = "course/gradebook-from-server.db"
DATABASE_S = 60.0


@dataclass
class Kept:
    """What went into a backup, and what was left out."""

    files: int = 0
    bytes: int = 0
    left: list[str] = field(default_factory=list)


def backup(layout: Layout, target: Path) -> Kept:
    """Write a class's folder into a new file that only its owner can read.

    Raises:
        UserError: the file is there already, lies in the folder, or a database cannot be copied; nothing is left then.
    """
    target = target.expanduser().resolve()
    if target.exists():
        raise UserError(f"{target} is there already: give a new name, or move it away.")
    if target.is_relative_to(layout.folder):
        raise UserError(f"{target} lies in the class's own folder: put it where the loss of that one does not reach.")
    if not target.parent.is_dir():
        raise UserError(f"There is no folder {target.parent}: make it first.")
    part = target.with_name(f"{target.name}.part")
    kept = Kept()
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as place:  # mode 700
            copies = dict(_databases(layout, Path(place)))
            opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
                _note(archive, layout)
                _add_all(archive, layout.folder, copies, kept)
                file.flush()
        os.link(part, target)  # unlike a rename, this refuses what came there meanwhile
    except FileExistsError:
        raise UserError(f"{part} is there: another backup runs, or was killed; then delete it.") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.unlink()
    return kept


def _note(archive: tarfile.TarFile, layout: Layout) -> None:
    info = tarfile.TarInfo(NOTE)
    told = {"form": FORM, "course": layout.spec.course, "made": datetime.now(UTC).isoformat()}
    text = json.dumps(told).encode()
    info.size = len(text)
    archive.addfile(info, io.BytesIO(text))


def _databases(layout: Layout, place: Path) -> Iterator[tuple[str, Path]]:
    """Copies of the databases, by their names in the archive."""
    for number, path in enumerate((layout.hub / "jupyterhub.sqlite", layout.data / "gradebook.db")):
        if path.is_file():
            copy = place / str(number)
            _snapshot(path, copy)
            yield str(path.relative_to(layout.folder)), copy
    if not is_file(layout.course.gradebook_url):
        yield SERVER_COPY, _from_server(layout, place / "server")


def _snapshot(path: Path, copy: Path) -> None:
    until = time.monotonic() + DATABASE_S

    def waited(*_: int) -> None:
        if time.monotonic() > until:
            raise UserError(f"{path} was being written for {DATABASE_S:g} s: try again when nothing is graded.")

    try:
        with closing(sqlite3.connect(path, timeout=5)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target, progress=waited)
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be copied ({error}): is the disk full, or the file damaged?") from None


def _from_server(layout: Layout, copy: Path) -> Path:
    """The gradebook of a server as a file; asked for as the grader, whose password it is."""
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=layout.data / "home") as folder:
        if layout.separate:
            os.chown(folder, layout.grader_uid, layout.grader_uid)
        made = Path(folder) / "copy.db"
        words = ["-m", "autograder", "gradebook", "copy", layout.course.gradebook_url, str(made)]
        done = run_as_grader(layout, *words, timeout=600)
        if done.returncode:
            raise UserError(f"The gradebook's server was not copied: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        shutil.copyfile(made, copy)
    return copy


def _add_all(archive: tarfile.TarFile, root: Path, copies: dict[str, Path], kept: Kept) -> None:
    """All that is in the folder, in an order of its own; what comes or goes meanwhile is in it or not."""
    beside = {f"{name}-{kind}" for name in copies for kind in ("journal", "wal", "shm")}
    for folder, inner, names, handle in os.fwalk(root, follow_symlinks=False):
        here = os.path.relpath(folder, root)
        if here.startswith("course/home/.backup-"):
            continue
        archive.addfile(_info(PurePosixPath(here), os.fstat(handle), tarfile.DIRTYPE))
        for name in sorted([*names, *inner]):
            path = PurePosixPath(here) / name
            if str(path) in copies or str(path) in beside:
                continue
            with suppress(FileNotFoundError):
                _add(archive, path, name, handle, kept)
    for name, copy in copies.items():
        found = (root / name).stat() if (root / name).exists() else (root / name).parent.stat()
        info = _info(PurePosixPath(name), found, tarfile.REGTYPE)
        info.mode, info.size = 0o600, copy.stat().st_size
        with copy.open("rb") as file:
            archive.addfile(info, file)
        kept.files, kept.bytes = kept.files + 1, kept.bytes + info.size


def _info(path: PurePosixPath, found: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(str(path))
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(found.st_mode), found.st_mtime
    info.uid, info.gid = found.st_uid, found.st_gid
    return info


def _add(archive: tarfile.TarFile, path: PurePosixPath, name: str, handle: int, kept: Kept) -> None:
    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        return  # comes in its turn
    if stat.S_ISLNK(found.st_mode):
        info = _info(path, found, tarfile.SYMTYPE)
        info.linkname = os.readlink(name, dir_fd=handle)
        archive.addfile(info)
        return
    if not stat.S_ISREG(found.st_mode):
        kept.left.append(str(path))
        return
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        kept.left.append(str(path))
        return
    with os.fdopen(opened, "rb") as file:
        info = _info(path, os.fstat(opened), tarfile.REGTYPE)
        info.size = os.fstat(opened).st_size
        archive.addfile(info, _Whole(file, info.size))
    kept.files, kept.bytes = kept.files + 1, kept.bytes + info.size


class _Whole(io.RawIOBase):
    """A file that is read to the length it had, with zeros where it became shorter meanwhile."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.file, self.rest = file, size

    def read(self, size: int = -1) -> bytes:
        size = self.rest if size < 0 else min(size, self.rest)
        got = self.file.read(size)
        self.rest -= size
        return got + bytes(size - len(got))


def restore(source: Path, folder: Path) -> Layout:
    """Make a class's folder from a backup, here or elsewhere: whole, or not at all.

    Raises:
        UserError: the folder is there already, or the file is no whole backup.
    """
    folder = folder.expanduser().resolve()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already: give a new one, or move it away.")
    part = folder.with_name(f".{folder.name}.restoring")
    try:
        part.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise UserError(f"{part} is there: another restore runs, or was killed; then delete it.") from None
    try:
        _unpack(source, part)
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except (tarfile.TarError, OSError, EOFError, ValueError, KeyError, gzip.BadGzipFile) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise UserError(f"{source} cannot be restored ({error}): is it a whole file of `hub backup`?") from None
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    layout = Layout.of(folder)
    write_settings(layout)  # these three name the folder, which may be another now, and this Python
    write_names(layout)
    layout.config.write_text(render(layout), encoding="utf-8")
    return layout


def _unpack(source: Path, root: Path) -> None:
    """Folders and files first, links last: nothing is written through a link. Modes of folders come at the end."""
    folders, links = [], []
    with tarfile.open(source, "r:gz") as archive:
        note = archive.next()
        if note is None or note.name != NOTE or json.load(archive.extractfile(note)).get("form") != FORM:
            raise ValueError("it does not begin as one")
        for member in archive:
            path = root / _inside(member.name)
            if member.isdir():
                path.mkdir(exist_ok=path == root, mode=0o700)
                folders.append((path, member))
            elif member.isreg():
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    shutil.copyfileobj(archive.extractfile(member), file)
                _as_it_was(path, member)
            elif member.issym():
                links.append((path, member))
            else:
                raise ValueError(f"{member.name} is of a kind that no backup has")
    for path, member in links:
        path.symlink_to(member.linkname)
        if os.getuid() == 0:
            os.lchown(path, member.uid, member.gid)
    for path, member in reversed(folders):
        _as_it_was(path, member)


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name} leads out of it")
    return path


def _as_it_was(path: Path, member: tarfile.TarInfo) -> None:
    if os.getuid() == 0:
        os.chown(path, member.uid, member.gid)
    path.chmod(member.mode)
    os.utime(path, (member.mtime, member.mtime))
