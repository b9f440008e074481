"""From the bytes of a file to the JSON of a notebook, also where the file is not what Jupyter would have saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

GB2312 = re.compile(rb"(?:[\x00-\x7f]|[\xa1-\xf7][\xa1-\xfe])*")
CONFLICT = re.compile(
    r"^<{7}[^\n]*\n(.*?)^(?:\|{7}[^\n]*\n.*?^)?={7}[^\n]*\n(.*?)^>{7}[^\n]*$\n?", re.MULTILINE | re.DOTALL
)
# Possessive: a string of hundreds of megabytes must leave nothing to come back to.
TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
SPACE = re.compile(r"\s*:?\s*")
LARGE = 8 << 20
KINDS = {
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x7fELF": "a program",
    b"Rar!": "a rar archive",
    b"7z\xbc\xaf": "a 7z archive",
}


class Unreadable(ValueError):
    """A file that cannot be graded; one sentence says why and what to do."""


def text_of(raw: bytes) -> tuple[str, list[str]]:
    """The text of a file, and a note where it is not UTF-8.

    Raises:
        Unreadable: it is empty, or a picture, an archive and the like.
    """
    if not raw.strip(b"\x00 \t\r\n"):
        raise Unreadable("The file is empty.")
    for magic, kind in KINDS.items():
        if raw.startswith(magic):
            raise Unreadable(f"The file is {kind}, not a notebook: hand in the .ipynb file itself.")
    for encoding, found in ENCODINGS:
        if found(raw):
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError:
                continue
            odd = not encoding.startswith("utf-8")
            return text.lstrip("\ufeff"), [f"the file was read as {encoding.upper()} text; Jupyter saves UTF-8"] * odd
    raise Unreadable("The file is no text, so it is not a notebook as Jupyter saves it.")


def _zeros(raw: bytes, first: int) -> bool:
    """Whether about every second byte is zero, beginning with `first`: UTF-16 of mostly English text."""
    part = raw[first:2000:2]
    return len(part) > 4 and part.count(0) > 0.7 * len(part)


ENCODINGS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("utf-8-sig", lambda raw: raw.startswith(b"\xef\xbb\xbf")),
    ("utf-32", lambda raw: raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff"))),
    ("utf-16", lambda raw: raw.startswith((b"\xff\xfe", b"\xfe\xff"))),
    ("utf-16-le", lambda raw: _zeros(raw, 1)),
    ("utf-16-be", lambda raw: _zeros(raw, 0)),
    ("utf-8", lambda raw: True),
    ("gb18030", lambda raw: GB2312.fullmatch(raw) is not None),
    ("latin-1", lambda raw: b"\0" not in raw),
)


def json_of(text: str) -> tuple[Any, list[str]]:
    """The JSON value that a file holds, and notes on what is odd in it.

    Raises:
        Unreadable: one sentence that says where the JSON breaks off, or what the file is in its place.
    """
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        raise Unreadable("The file is a web page, not a notebook: hand in the .ipynb file itself.")
    double: set[str] = set()

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            seen: set[str] = set()
            double.update(key for key, _ in items if key in seen or seen.add(key))
        return found

    try:
        value, end = json.JSONDecoder(object_pairs_hook=pairs, strict=False).raw_decode(text.lstrip())
    except json.JSONDecodeError as error:
        if not start.startswith(("{", "[", "<<<<<<<")):
            raise Unreadable("The file is not valid JSON, so it is not a notebook as Jupyter saves it.") from None
        raise Unreadable(f"The file is not valid JSON: it breaks off or is damaged at line {error.lineno}.") from None
    except RecursionError:
        raise Unreadable("The file is not a notebook: its JSON is nested too deeply.") from None
    except ValueError as error:
        raise Unreadable(f"The file is not valid JSON: {' '.join(str(error).split())[:80]}.") from None
    notes = [f"the file says {_names(double)} twice in one place; the last one counts, as in Jupyter"] if double else []
    if text.lstrip()[end:].strip("\x00 \t\r\n"):
        notes.append("the file goes on after the end of its notebook; only its beginning was read")
    return value, notes


def _names(keys: set[str]) -> str:
    return ", ".join(json.dumps(key)[:40] for key in sorted(keys)[:3])


def sides_of_conflict(text: str) -> tuple[str, str] | None:
    """Both versions of a text with marks of a merge conflict; None where it has none."""
    if not CONFLICT.search(text):
        return None
    return CONFLICT.sub(r"\1", text), CONFLICT.sub(r"\2", text)


def whole_cells(text: str) -> list[Any]:
    """The cells that are complete in a file whose end is missing."""
    start = re.search(r'"cells"\s*:\s*\[', text)
    if not start:
        return []
    decoder, cells, place = json.JSONDecoder(strict=False), [], start.end()
    while True:
        place = re.compile(r"[\s,]*").match(text, place).end()
        try:
            cell, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return cells
        cells.append(cell)


def without_outputs(text: str) -> str:
    """The JSON text of a notebook with every list of outputs emptied, made without parsing what is in them.

    Example:
        >>> without_outputs('{"cells": [{"outputs": [{"data": 1}], "source": ""}]}')
        '{"cells": [{"outputs": [], "source": ""}]}'
    """
    pieces, kept, depth, skip_from, skip_depth = [], 0, 0, -1, 0
    for token in TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
            if skip_from >= 0 and depth == skip_depth:
                pieces.append(text[kept:skip_from] + "[]")
                kept, skip_from = token.end(), -1
        elif skip_from < 0 and token[0] == '"outputs"':
            value = SPACE.match(text, token.end()).end()
            if ":" in text[token.end() : value] and text[value : value + 1] == "[":
                skip_from, skip_depth = value, depth
    return "".join(pieces) + text[kept:]
