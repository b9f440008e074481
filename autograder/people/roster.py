"""A table of students as Canvas or Moodle lets you download it, to be filled with scores and sent back.

What their importers do with it is in tests/deploy/test_lms.py. Canvas takes commas and semicolons, so its file keeps
the ones it came with; Moodle's worksheet is read with commas, however a spreadsheet saved it.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from autograder.course import UserError
from autograder.people.roll import Entry

CANVAS_IDS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID")
CANVAS_NAMES = ("FirstName", "LastName")  # in place of Student, where Canvas was told to
DECIDED = ("EX", "N/A")  # excused, and not assigned to this student: a person's decision in Canvas
MOODLE_IDS = ("Identifier", "Full name", "Email address", "Username", "ID number")
MOODLE_NAMES = ("First name", "Last name")
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class Roster:
    """The rows of such a file, and where in them a student and a score stand."""

    def __init__(self, rows: list[list[str]], form: str, name: str) -> None:
        self.rows, self.form, self.name = rows, form, name
        self.header = [text.strip() for text in rows[0]]
        self.delimiter, self.mark = ",", ""  # what separates columns, and what stands before the first
        self.decided: list[str] = []
        self.column = -1
        self._filled: set[int] = set()
        self._by_key = self._index()

    @classmethod
    def read(cls, path: Path, form: str) -> Roster:
        """Read a download of Canvas or Moodle.

        Raises:
            UserError: it cannot be read, or is no such file.
        """
        try:
            whole = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = f"The roster {path} cannot be read ({error}): give the CSV file as it was downloaded."
            raise UserError(said) from None
        text = whole.removeprefix(BOM)
        first = text.splitlines()[0] if text.strip() else ""
        delimiter = max(",;\t", key=first.count)
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
        who = "LastName" if rows and "LastName" in rows[0] else "Student"
        wanted = (who, "Section") if form == "canvas" else ("Grade",)
        missing = [name for name in wanted if not rows or name not in [cell.strip() for cell in rows[0]]]
        if missing:
            source = "Canvas's gradebook" if form == "canvas" else "Moodle's offline grading worksheet"
            raise UserError(f"The roster {path} has no column {missing[0]!r}: download it from {source}, in English.")
        for row in rows:
            row += [""] * (len(rows[0]) - len(row))  # Moodle refuses a file whose rows differ in length
        made = cls(rows, form, str(path))
        if form == "canvas":
            made.delimiter, made.mark = delimiter, whole[: len(whole) - len(text)]
        return made

    def prepare(self, lab: str, max_score: float) -> None:
        """Find the column of the lab's score; Canvas gets a new one where it has none.

        Raises:
            UserError: the platform counts the lab in other points.
        """
        if self.form == "moodle":
            self.column = self.header.index("Grade")
            highest = next((place for place, title in enumerate(self.header) if title.lower() == "maximum grade"), -1)
            self._hold_to(max_score, [row[highest] for row in self.rows[1:]] if highest >= 0 else [], "Moodle")
            return
        fits = [place for place, title in enumerate(self.header) if _is_lab(title, lab)]
        if len(fits) > 1:
            titles = ", ".join(self.header[place] for place in fits)
            raise UserError(f"The roster {self.name} has {len(fits)} columns for {lab}: {titles}; leave one in it.")
        self._drop_totals(keep=fits)
        if not fits:
            self.header.append(lab)
            self.rows[0].append(lab)
        self.column = next(place for place, title in enumerate(self.header) if _is_lab(title, lab))
        for row in self.rows[1:]:
            row += [""] * (len(self.header) - len(row))
            if _is_points(row):
                self._hold_to(max_score, [row[self.column]], "Canvas")
                row[self.column] = row[self.column] or f"{max_score:g}"

    def _hold_to(self, max_score: float, told: Iterable[str], platform: str) -> None:
        other = [text for text in told if text and _number(text) not in (None, max_score)]
        if other:
            raise UserError(
                f"{platform} counts this assignment in {other[0]} points and the lab in {max_score:g}: "
                f"set its highest grade to {max_score:g} in {platform} and download the file again."
            )

    def _drop_totals(self, keep: list[int]) -> None:
        """Leave out other assignments and Canvas's read-only totals: sent back, they could only undo something."""
        last = self.header.index("Section")
        kept = [place for place in range(len(self.header)) if place <= last or place in keep]
        self.header = [self.header[place] for place in kept]
        self.rows = [[row[place] if place < len(row) else "" for place in kept] for row in self.rows]
        self._by_key = self._index()

    def fill(self, entry: Entry, score: str) -> bool:
        """Put a score into the student's row; False where none or several are, or where another student's went.

        The number under which the platform gave us the hand-in is surer than any name.
        """
        found = self._by_number(entry.platform)
        for key in [] if found else _keys_of(entry):
            found = self._by_key.get(key, set())
            if found:
                break
        if len(found) != 1 or found <= self._filled:
            return False
        self._filled |= found
        row = self.rows[min(found)]
        row += [""] * (self.column + 1 - len(row))
        if self.form == "canvas" and row[self.column].strip() in DECIDED:
            self.decided.append(f"{entry.student} ({row[self.column].strip()})")
        else:
            row[self.column] = score
        return True

    def _by_number(self, platform: str) -> set[int]:
        """The rows with a platform's number: Canvas has it as ID, Moodle's worksheet as `Participant N`."""
        form, _, number = platform.partition(" ")
        title, text = {"canvas": ("ID", number), "moodle": ("Identifier", f"Participant {number}")}.get(form, ("", ""))
        if form != self.form or title not in self.header:
            return set()
        place = self.header.index(title)
        return {n for n, row in enumerate(self.rows) if n and place < len(row) and row[place].strip() == text}

    def _index(self) -> dict[str, set[int]]:
        places = [place for place, title in enumerate(self.header) if title in (*CANVAS_IDS, *MOODLE_IDS)]
        names = [self.header.index(title) for title in (*MOODLE_NAMES, *CANVAS_NAMES) if title in self.header]
        index: dict[str, set[int]] = {}
        for number, row in enumerate(self.rows[1:], start=1):
            if _is_points(row) or not any(cell.strip() for cell in row[:2]):
                continue  # the second kind tells which grades Canvas still hides
            texts = [row[place] for place in places if place < len(row)]
            texts += [" ".join(row[place] for place in names if place < len(row))] if names else []
            for key in {key for text in texts for key in _forms(text)}:
                index.setdefault(key, set()).add(number)
        return index


def _keys_of(entry: Entry) -> Iterable[str]:
    """What a student may be called in a roster, the surest first."""
    for text in (entry.student, entry.email, f"{entry.first_name} {entry.last_name}"):
        yield from _forms(text)


def _forms(text: str) -> list[str]:
    """The forms in which one identity is compared: letters and digits only, names in either order.

    >>> _forms("Smith, John"), _forms("Participant 123"), _forms("ada@x.edu")
    (['smithjohn', 'johnsmith'], ['participant123', '123'], ['adaxedu', 'ada'])
    """
    forms = [_squeezed(text)]
    if "," in text:
        last, first = text.split(",", 1)
        forms.append(_squeezed(first + last))
    elif found := re.fullmatch(r"\s*Participant\s+(\d+)\s*", text):
        forms.append(found.group(1))
    elif re.fullmatch(r"[^@\s]+@[^@\s]+", text.strip()):
        forms.append(_squeezed(text.split("@")[0]))
    return [form for form in forms if form]


def _squeezed(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().strip()
    letters = "".join(c for c in text if c.isalnum())
    return "" if letters.isdigit() and letters != text else letters  # a number is nobody else's number


def _is_points(row: list[str]) -> bool:
    return row[0].strip() == "Points Possible"


def _is_lab(title: str, lab: str) -> bool:
    """Whether a column is the lab's: `lab01_allreduce (123)`, `Lab 01: AllReduce (123)`, `lab01`."""
    bare = _squeezed(re.sub(r"\s*\(\d+\)$", "", title))
    return bare == _squeezed(lab) or re.fullmatch(rf"{_squeezed(lab.split('_')[0])}(?!\d).*", bare) is not None


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None
