"""Read a text source: jupytext's py:percent with four short cell markers.

    # %% [markdown]                      text, every line a comment
    # %% shared="imports"                read-only code that also runs where verdicts are made
    # %% solution="ring_all_reduce"      the student's cell
    # %% test="ring_uneven" points=2     locked test cell
    # %%                                 plain code, student's side only

Files of answers to a lab also have `# %% edit="ring_all_reduce"` (autograder/sources/edits.py).

Lines are counted in the file, so that messages can name them. Comments before the first marker are the
file's own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

NAMED_KINDS = ("shared", "solution", "test", "edit")
_MARKER = re.compile(r"^# %%(?:\s+(?P<options>.*))?$")
_OPTION = re.compile(r'\s*(?P<key>[a-z_]+)=(?P<value>"[^"]*"|\[[^\]]*\]|[^\s"\[]+)')
_NAME = re.compile(r"^[a-z][a-z0-9_]*$")
_COMMENTED_MAGIC = re.compile(r"^# (%%?[a-zA-Z].*)$")


class SourceError(ValueError):
    """A text source that cannot be used; the message names the file, the line and what to change."""


@dataclass(frozen=True)
class Cell:
    """One cell of a text source.

    `kind` is markdown, shared, solution, test, edit or plain; `name` is the grade id of the named kinds and None
    elsewhere; `line` is the file's line (from 1) that holds the first line of `text`.
    """

    kind: str
    text: str
    line: int
    name: str | None = None
    points: int = 0
    tags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How messages call the cell, e.g. `test cell "ring_uneven"`."""
        return f'{self.kind} cell "{self.name}"' if self.name else f"{self.kind} cell at line {self.line}"


@dataclass(frozen=True)
class Source:
    """A text source: its path, its cells in order, the comments before the first cell (without `# `)."""

    path: Path
    cells: tuple[Cell, ...]
    preamble: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def is_lab(self) -> bool:
        return any(cell.kind in ("solution", "test") for cell in self.cells)

    def of_kind(self, *kinds: str) -> list[Cell]:
        """The cells of these kinds, in order."""
        return [cell for cell in self.cells if cell.kind in kinds]


def read_source(path: str | Path) -> Source:
    """Read a text source from a file; SourceError names the line that cannot be read.

    >>> read_source("solutions/lab01_allreduce.py").of_kind("test")[0].points   # doctest: +SKIP
    1
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}.") from error
    return parse_source(text, path)


def parse_source(text: str, path: str | Path = "source.py") -> Source:
    """Split the text of a source into cells; `path` is only for messages and the source's name."""
    path = Path(path)
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _MARKER.match(line)]
    if not starts:
        raise SourceError(f"{path.name} has no cell: put `# %%` above the first.")
    preamble = _preamble(lines[: starts[0]], path)
    cells = [
        _cell(lines, start, end, path) for start, end in zip(starts, starts[1:] + [len(lines)], strict=True)
    ]
    return Source(path, tuple(cells), preamble)


def _preamble(lines: list[str], path: Path) -> tuple[str, ...]:
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            raise SourceError(f"{path.name}, line {number}: code before the first cell; put `# %%` above it.")
    texts = [re.sub(r"^# ?", "", line) for line in lines if line.strip()]
    if texts[:1] == ["---"] and "---" in texts[1:]:  # jupytext's own header; the kernel is always python3
        texts = texts[texts.index("---", 1) + 1 :]
    return tuple(texts)


def _cell(lines: list[str], start: int, end: int, path: Path) -> Cell:
    kind, name, points, tags = _options(_MARKER.match(lines[start])["options"] or "", start + 1, path)
    body = lines[start + 1 : end]
    first = next((i for i, line in enumerate(body) if line.strip()), 0)
    body = body[first:]
    line = start + 2 + first
    if kind == "markdown":
        body = _markdown(body, line, path)
    elif kind == "plain":
        # only there: a commented magic in a graded cell stays the comment it is
        body = [_COMMENTED_MAGIC.sub(r"\1", text) for text in body]
    return Cell(kind, "\n".join(body).rstrip(), line, name, points, tags)


def _options(text: str, line: int, path: Path) -> tuple[str, str | None, int, tuple[str, ...]]:
    """The options of a marker as (kind, name, points, tags)."""

    def refuse(why: str) -> SourceError:
        return SourceError(f"{path.name}, line {line}: {why}")

    kind = "plain"
    if text.startswith("[markdown]"):
        kind, text = "markdown", text.removeprefix("[markdown]")
    found, position = {}, 0
    for match in _OPTION.finditer(text):
        if text[position : match.start()].strip():
            break
        try:
            found[match["key"]] = json.loads(match["value"])
        except json.JSONDecodeError:
            raise refuse(
                f"{match['key']}={match['value']} is neither a number nor in double quotes."
            ) from None
        position = match.end()
    if text[position:].strip():
        raise refuse(f"cannot read {text[position:].strip()!r} in a cell marker.")
    named = [key for key in NAMED_KINDS if key in found]
    if len(named) > 1 or (named and kind == "markdown"):
        raise refuse("a cell is one of markdown, shared, solution and test.")
    if named:
        kind = named[0]
    name, points = found.pop(kind, None), found.pop("points", None)
    tags = found.pop("tags", [])
    if found:
        raise refuse(
            f"unknown option {next(iter(found))!r}; known are shared, solution, test, edit, points and tags."
        )
    if name is not None and not (isinstance(name, str) and _NAME.match(name)):
        raise refuse(f"{name!r} cannot be a cell's name: use lower case letters, digits and underscores.")
    if (kind == "test") != (points is not None):
        raise refuse("points=... belongs to every test cell and to no other.")
    if points is not None and not (type(points) is int and points > 0):
        raise refuse(f"points={points!r}: points are whole numbers above 0.")
    return kind, name, points or 0, tuple(tags)


def _markdown(body: list[str], line: int, path: Path) -> list[str]:
    text = []
    for number, row in enumerate(body, start=line):
        if not row.strip():
            text.append("")
        elif row.startswith("# ") or row.rstrip() == "#":
            text.append(row[2:])
        else:
            raise SourceError(f"{path.name}, line {number}: a line of a markdown cell begins with `# `.")
    return text
