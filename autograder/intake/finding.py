"""Finds every student's hand-in in a folder or archive, whatever made it, and which version of it counts.

Understood are nbgrader's submitted tree and what its exchange collects, a folder for each student, loose
notebooks, and the archives of Canvas and Moodle, with archives inside. Links and devices are never followed.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from autograder.intake.archives import CLASS_ROOM, BadArchive, Room, is_archive, is_foreign, unpack
from autograder.intake.names import Owner, copy_free, loose_owner, moment, of_another_lab, owner_of, safe_name

IGNORED = {"__MACOSX", "Thumbs.db", "desktop.ini", "__pycache__", "timestamp.txt"}
NESTED = 3
LOOKED_AT = 20_000


@dataclass
class HandIn:
    """One version of one student's work: its files, and the notebook among them that is graded.

    `files` says of each file where it lay beside the notebook. `when` is None where nothing but a file's date tells;
    `problem` is a sentence where there is no notebook.
    """

    student: str
    folder: Path
    notebook: Path | None = None
    platform: str = ""
    when: datetime | None = None
    marked_late: bool = False
    attempt: int = 0
    files: dict[Path, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def written(self) -> datetime:
        """When it was handed in, else when its notebook was last written."""
        path = self.notebook or self.folder
        return self.when or datetime.fromtimestamp(path.lstat().st_mtime, UTC)


class Finder:
    """Walks what was handed in; archives are unpacked below `scratch`, which belongs to the caller.

    `tasks` are names that mark a notebook as one of this lab, where its own name does not tell; `tell` says a time
    in the class's zone.

    Example:
        Finder("lab01_allreduce", {"ring_sum"}, Path("/tmp/x")).find(Path("submissions.zip"))
    """

    def __init__(
        self, lab: str, tasks: set[str], scratch: Path, tell: Callable[[datetime], str] = "{:%Y-%m-%d %H:%M} UTC".format
    ) -> None:
        self.lab = lab
        self.tell = tell
        self.tasks = [f'"{task}"'.encode() for task in sorted(tasks)]
        self.scratch = scratch
        self.unpacked = 0

    def find(self, place: Path) -> list[HandIn]:
        """The newest version of every student's hand-in, by name."""
        if place.is_file():
            folder, notes = self._unpack(place, CLASS_ROOM)
            only = _entries(folder)
            if len(only) == 1 and only[0].is_dir() and len(list(only[0].glob("*.ipynb"))) > 1:
                folder = only[0]  # the class's folder itself was zipped
            found = self.in_class(folder)
            for hand_in in found[:1]:
                hand_in.notes += notes
        else:
            found = self.in_class(place)
        return newest(found, self.tell)

    def in_class(self, folder: Path, depth: int = 0) -> list[HandIn]:
        """All hand-ins in a folder that holds a class."""
        found: dict[tuple[str, str, object], HandIn] = {}
        apart: list[HandIn] = []
        for entry in _entries(folder):
            if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                apart.append(_refused(entry, self.lab))
            elif entry.is_dir():
                try:
                    apart += self._folder(entry, depth)
                except OSError as error:
                    why = f"{entry.name} cannot be opened: {error.strerror}."
                    apart.append(HandIn(entry.name, folder, problem=why))
            elif owner := owner_of(entry.name):
                key = (owner.name, owner.platform, owner.when)
                hand_in = found.setdefault(key, _hand_in(owner, folder))
                hand_in.attempt = max(hand_in.attempt, owner.attempt)
                hand_in.files[entry] = Path(owner.file or entry.name)
            elif is_archive(entry):
                apart += self._archive(entry, depth)
            elif entry.suffix.lower() == ".ipynb" and not of_another_lab(entry.stem, self.lab):
                owner = loose_owner(entry.stem, self.lab, folder.name)
                apart.append(HandIn(owner.name, folder, entry, attempt=owner.attempt))
        for hand_in in found.values():
            self._choose(hand_in, hand_in.files)
        return [*found.values(), *apart]

    def in_student(self, student: str, folder: Path) -> list[HandIn]:
        """The hand-in in a folder that holds one student's work on this lab."""
        hand_in = HandIn(student, folder, when=_stamp(folder))
        self._choose(hand_in, _files(folder, hand_in.notes))
        return [hand_in]

    def _folder(self, entry: Path, depth: int) -> list[HandIn]:
        owner = owner_of(entry.name)
        if owner is None and depth < NESTED and self._holds_a_class(entry):
            return self.in_class(entry, depth + 1)
        if owner and owner.when and owner.file != self.lab:
            return []  # what the exchange has of another lab
        return self._student(owner or Owner(entry.name), entry)

    def _holds_a_class(self, folder: Path) -> bool:
        """Whether a folder holds students and is none itself."""
        entries = [entry for entry in _entries(folder) if not entry.is_symlink()]
        loose = [entry for entry in entries if entry.suffix == ".ipynb" and not owner_of(entry.name)]
        if loose or any(entry.name == self.lab for entry in entries):
            return False
        below = [entry for entry in entries if entry.is_dir()]
        return any(owner_of(entry.name) for entry in entries) or any((entry / self.lab).is_dir() for entry in below)

    def _student(self, owner: Owner, folder: Path, notes: list[str] | None = None) -> list[HandIn]:
        """The hand-in in a student's folder, or none where it holds other labs only."""
        here = folder / self.lab
        labs = [entry for entry in _entries(folder) if entry.is_dir() and entry.name.startswith("lab")]
        others = bool(labs) and all(of_another_lab(entry.name, self.lab) for entry in labs)
        if others and not any(entry.suffix == ".ipynb" for entry in _entries(folder)):
            return []
        root = here if here.is_dir() and not here.is_symlink() else folder
        hand_in = _hand_in(owner, root)
        hand_in.when = owner.when or _stamp(root)
        hand_in.notes += notes or []
        self._choose(hand_in, _files(root, hand_in.notes))
        return [hand_in]

    def _archive(self, entry: Path, depth: int) -> list[HandIn]:
        """An archive beside hand-ins: a class's or a student's."""
        try:
            folder, notes = self._unpack(entry, CLASS_ROOM if depth == 0 else Room())
        except BadArchive as error:
            owner = loose_owner(entry.name.split(".")[0], self.lab, entry.stem)
            return [HandIn(owner.name, entry.parent, attempt=owner.attempt, problem=str(error))]
        if depth < NESTED and (self._holds_a_class(folder) or self._wrapped_class(folder)):
            found = self.in_class(folder, depth + 1)
            for hand_in in found[:1]:
                hand_in.notes += notes
            return found
        return self._student(loose_owner(entry.name.split(".")[0], self.lab, entry.stem), folder, notes)

    def _wrapped_class(self, folder: Path) -> bool:
        entries = _entries(folder)
        return len(entries) == 1 and entries[0].is_dir() and self._holds_a_class(entries[0])

    def _choose(self, hand_in: HandIn, files: dict[Path, Path], depth: int = 0) -> None:
        """Which of a student's files is graded; archives among them are opened."""
        hand_in.files = self._opened(hand_in, files, depth)
        notebooks = [path for path, place in hand_in.files.items() if place.suffix.lower() == ".ipynb"]
        if not notebooks:
            hand_in.problem = _no_notebook(hand_in)
            return
        hand_in.problem = ""
        hand_in.notebook = min(notebooks, key=lambda path: self._rank(path, hand_in.files[path]))
        if len(notebooks) > 1 and depth == 0:
            chosen = hand_in.files[hand_in.notebook]
            hand_in.notes.append(f"of {len(notebooks)} notebooks, {chosen} is graded")

    def _opened(self, hand_in: HandIn, files: dict[Path, Path], depth: int) -> dict[Path, Path]:
        """The files with those that lie in archives among them in place of these."""
        plain = {}
        for path, place in files.items():
            if not is_archive(path) or depth == NESTED:
                plain[path] = place
                continue
            try:
                folder, notes = self._unpack(path, Room())
            except BadArchive as error:
                hand_in.notes.append(str(error))
            else:
                hand_in.notes += notes
                plain |= self._opened(hand_in, _files(folder, hand_in.notes), depth + 1)
        return plain

    def _rank(self, path: Path, place: Path) -> tuple[bool, int, int, float, int, str]:
        """Lower is better: holds the lab's tasks, is named after the lab, is newer, has a higher number."""
        stem, short = copy_free(place.stem), self.lab.split("_")[0]
        fits = (stem == self.lab, stem == short, self.lab in stem, short in stem, True)
        owner = owner_of(path.name)
        upload = owner.attempt if owner else 0
        number = loose_owner(place.stem, self.lab, "").attempt
        written = path.lstat().st_mtime
        return not self._of_this_lab(path), fits.index(True), -upload, -written, -number, str(place)

    def _of_this_lab(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                content = file.read(4 << 20)
        except OSError:
            return False
        return any(task in content for task in self.tasks)

    def _unpack(self, path: Path, room: Room) -> tuple[Path, list[str]]:
        self.unpacked += 1
        folder = self.scratch / f"unpacked{self.unpacked}" / path.name.split(".")[0]
        return folder, unpack(path, folder, room)


def newest(found: list[HandIn], tell: Callable[[datetime], str]) -> list[HandIn]:
    """One hand-in for each student, the newest, with a note on what it replaces; names are safe for nbgrader."""
    by_owner: dict[tuple[str, str], list[HandIn]] = {}
    for hand_in in found:
        hand_in.student = safe_name(hand_in.student)
        by_owner.setdefault((hand_in.student, hand_in.platform), []).append(hand_in)
    platforms: dict[str, set[str]] = {}
    for student, platform in by_owner:
        platforms.setdefault(student, set()).add(platform)
    kept = []
    for (student, platform), versions in by_owner.items():
        best = max(versions, key=_age)
        if len(versions) > 1:
            best.notes.append(f"of {len(versions)} hand-ins of {student} the newest is graded, {_told(best, tell)}")
        if len(platforms[student]) > 1 and platform:
            # Two people of one name: the platform's number tells them apart, in this run as in the next.
            best.student = safe_name(f"{student} ({platform})")
            best.notes.append(f"{len(platforms[student])} students are named {student}; this one is {platform}")
        kept.append(best)
    return sorted(kept, key=lambda one: one.student)


def _age(hand_in: HandIn) -> tuple[bool, int, datetime, int, str]:
    """Orders versions of one student's work: a platform's numbers before dates, dates before a browser's numbers."""
    number = hand_in.attempt if hand_in.platform else 0
    return hand_in.notebook is not None, number, hand_in.written, hand_in.attempt, str(hand_in.notebook)


def _told(hand_in: HandIn, tell: Callable[[datetime], str]) -> str:
    name = hand_in.notebook.name if hand_in.notebook else hand_in.folder.name
    return f"{name} of {tell(hand_in.written)}"


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.name not in IGNORED and not entry.name.startswith("."))


def _hand_in(owner: Owner, folder: Path) -> HandIn:
    hand_in = HandIn(owner.name, folder, platform=owner.platform, when=owner.when)
    hand_in.marked_late, hand_in.attempt = owner.marked_late, owner.attempt
    return hand_in


def _refused(entry: Path, lab: str) -> HandIn:
    kind = "a link" if entry.is_symlink() else "a device"
    owner = owner_of(entry.name) or loose_owner(entry.stem, lab, entry.stem)
    return HandIn(owner.name, entry.parent, problem=f"{entry.name} is {kind}, not a file: it was not followed.")


def _files(root: Path, notes: list[str]) -> dict[Path, Path]:
    """All ordinary files below a folder; links and devices are left alone and told."""
    found, refused, waiting = [], [], [root]
    while waiting and len(found) < LOOKED_AT:
        for entry in _entries(waiting.pop()):
            kind = entry.lstat().st_mode
            if stat.S_ISDIR(kind):
                waiting.append(entry)
            elif stat.S_ISREG(kind):
                found.append(entry)
            else:
                refused.append(entry.name)
    if waiting:
        notes.append(f"the hand-in holds more than {LOOKED_AT} files; only these were looked at")
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        notes.append(f"{', '.join(refused[:3])}{more} set aside: a link or a device, not a file")
    return {path: path.relative_to(root) for path in sorted(found)}


def _stamp(folder: Path) -> datetime | None:
    """The time that nbgrader's exchange left in timestamp.txt."""
    path = folder / "timestamp.txt"
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 200:
        return None
    return moment(path.read_text(encoding="utf-8", errors="replace"))


def _no_notebook(hand_in: HandIn) -> str:
    names = [str(place) for place in hand_in.files.values()]
    foreign = [name for name in names if is_foreign(Path(name))]
    why = [note for note in hand_in.notes if "cannot be unpacked" in note or "set aside" in note]
    if foreign:
        return f"{foreign[0]} is an archive of a kind that cannot be opened here: hand in the .ipynb file or a zip."
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"No notebook was handed in, only {', '.join(names[:3])}{more}: hand in the .ipynb file."
    if why:
        hand_in.notes.remove(why[0])
        return f"No notebook could be had: {why[0]}"
    return "The folder holds no notebook."
