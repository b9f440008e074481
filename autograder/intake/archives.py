"""Unpacks what students and learning platforms zip, and nothing that could do harm.

Only ordinary files come out, below the given folder, each under a name that was made safe. A member that is a
link or a device, that points outside, or that would be too much, is set aside with a sentence; the rest comes
out. Sizes are counted while unpacking, because an archive can lie about them.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

SUFFIXES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
FOREIGN = (".rar", ".7z", ".gz", ".bz2", ".xz")
CHUNK = 1 << 20
LISTED = 5


class BadArchive(ValueError):
    """An archive that cannot be opened; one sentence says why."""


@dataclass(frozen=True)
class Room:
    """How much may come out of one archive: bytes a file, bytes in all, files, and folders below folders."""

    file_bytes: int = 1 << 30
    bytes: int = 2 << 30
    files: int = 5_000
    depth: int = 20

    def __post_init__(self) -> None:
        if min(self.file_bytes, self.bytes, self.files, self.depth) <= 0:
            raise ValueError(f"{self} leaves no room: every number must be above 0")


CLASS_ROOM = Room(bytes=64 << 30, files=200_000)


@dataclass
class _Member:
    """One entry: its name, when it was written (seconds, 0 unknown), why it is refused, how to open it."""

    name: str
    written: float
    refused: str
    entry: zipfile.ZipInfo | tarfile.TarInfo


@dataclass
class _Unpacking:
    folder: Path
    room: Room
    bytes: int = 0
    files: int = 0
    aside: dict[str, list[str]] = field(default_factory=dict)

    def set_aside(self, name: str, why: str) -> None:
        self.aside.setdefault(why, []).append(name)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive that can be opened here, by its name (its content may still be none)."""
    return path.name.lower().endswith(SUFFIXES)


def is_foreign(path: Path) -> bool:
    """Whether a file is an archive of a kind that cannot be opened here."""
    return path.name.lower().endswith(FOREIGN) and not is_archive(path)


def unpack(path: Path, folder: Path, room: Room = Room()) -> list[str]:
    """Unpack a zip or tar file below a new folder; what was set aside, in sentences.

    Raises:
        BadArchive: it cannot be opened at all.

    Example:
        notes = unpack(Path("hand_in.zip"), Path("/tmp/x/new"))
    """
    work = _Unpacking(folder, Room(room.file_bytes, min(room.bytes, _free(folder)), room.files, room.depth))
    folder.mkdir(parents=True)
    try:
        with _open(path) as archive:
            for member in _members(archive):
                _take_out(archive, member, work)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, NotImplementedError, ValueError) as error:
        raise BadArchive(f"{path.name} cannot be unpacked: it is damaged or no archive ({_short(error)}).") from None
    return [f"{path.name}: {_listed(names)} set aside: {why}" for why, names in work.aside.items()]


def _free(folder: Path) -> int:
    there = next(parent for parent in folder.parents if parent.exists())
    disk = os.statvfs(there)
    return max(1, disk.f_bavail * disk.f_frsize // 2)


def _open(path: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if zipfile.is_zipfile(path):
        return zipfile.ZipFile(path)
    return tarfile.open(path)


def _members(archive: zipfile.ZipFile | tarfile.TarFile) -> Iterator[_Member]:
    if isinstance(archive, zipfile.ZipFile):
        # Notebooks first: whatever is too much in an archive must not cost the answers.
        for entry in sorted(archive.infolist(), key=lambda entry: not entry.filename.endswith(".ipynb")):
            if not entry.is_dir():
                yield _Member(_zip_name(entry), _zip_time(entry), _zip_refusal(entry), entry)
    else:
        for entry in archive:
            if not entry.isdir():
                refused = "" if entry.isreg() else "it is a link or a device, not a file"
                yield _Member(entry.name, max(0.0, float(entry.mtime)), refused, entry)


def _zip_name(entry: zipfile.ZipInfo) -> str:
    """A name in the encoding it was written in: zip programs on Windows write UTF-8 or GBK and do not say so."""
    if entry.flag_bits & 0x800:
        return entry.filename
    try:
        raw = entry.filename.encode("cp437")
    except UnicodeEncodeError:
        return entry.filename
    for encoding in ("utf-8", "gb18030"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return entry.filename


def _zip_time(entry: zipfile.ZipInfo) -> float:
    try:
        return time.mktime((*entry.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return 0.0


def _zip_refusal(entry: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "it is a link or a device, not a file"
    return "it is locked with a password" if entry.flag_bits & 0x1 else ""


def _take_out(archive: zipfile.ZipFile | tarfile.TarFile, member: _Member, work: _Unpacking) -> None:
    parts = [part for part in member.name.replace("\\", "/").split("/") if part not in ("", ".")]
    why = member.refused or _outside(member.name, parts) or _too_much(parts, work)
    if why:
        work.set_aside(member.name, why)
        return
    target = work.folder.joinpath(*(_safe_part(part) for part in parts))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _content(archive, member) as content:
            why = _write(content, target, work)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        target.unlink(missing_ok=True) if target.is_file() else None
        why = f"it cannot be read ({_short(error)})"
    except Exception as error:  # zlib and lzma have errors of their own
        target.unlink(missing_ok=True)
        why = f"it is damaged ({_short(error)})"
    if why:
        work.set_aside(member.name, why)
    elif member.written:
        os.utime(target, (member.written, member.written))


def _content(archive: zipfile.ZipFile | tarfile.TarFile, member: _Member) -> IO[bytes]:
    if isinstance(archive, zipfile.ZipFile):
        return archive.open(member.entry)
    return archive.extractfile(member.entry)


def _outside(name: str, parts: list[str]) -> str:
    if name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:[\\/]", name):
        return "its path leads outside the archive"
    return "" if parts else "it has no name"


def _too_much(parts: list[str], work: _Unpacking) -> str:
    if len(parts) > work.room.depth:
        return f"it lies more than {work.room.depth} folders deep"
    if work.files >= work.room.files:
        return f"the archive holds more than {work.room.files} files"
    return "" if work.bytes < work.room.bytes else _too_large(work)


def _too_large(work: _Unpacking) -> str:
    return f"the archive unpacks to more than {work.room.bytes / 1e9:.3g} GB"


def _write(content: IO[bytes], target: Path, work: _Unpacking) -> str:
    """Write a member in pieces; why it was given up, or nothing."""
    size, why = 0, ""
    with target.open("wb") as out:
        while piece := content.read(CHUNK):
            size += len(piece)
            if size > work.room.file_bytes:
                why = f"it unpacks to more than {work.room.file_bytes / 1e9:.3g} GB"
            elif work.bytes + size > work.room.bytes:
                why = _too_large(work)
            if why:
                break
            out.write(piece)
    # What was given up counts too: a thousand bombs may not take a thousand times the time.
    work.bytes, work.files = work.bytes + size, work.files + 1
    if why:
        target.unlink()
    return why


def _safe_part(part: str) -> str:
    """One component of a path, printable and short enough for a file system."""
    clean = "".join(c if c.isprintable() else "_" for c in part.encode("utf-8", "replace").decode("utf-8"))
    if len(clean.encode()) > 200:
        stem, dot, suffix = clean.rpartition(".")
        keep = dot + suffix if len(suffix) < 12 else ""
        clean = (stem or clean).encode()[: 200 - len(keep)].decode("utf-8", "ignore") + keep
    return clean


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__


def _listed(names: list[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:57]}..." for name in names[:LISTED]]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join("".join(c if c.isprintable() else "?" for c in name) for name in shown) + more
