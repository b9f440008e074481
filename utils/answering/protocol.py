"""Frames between the grader and the answering process, their kinds, sizes and fields.

A frame is `utils.ranks.wire`'s: a length, one byte of kind, a body; the body is one dict in the format of
`utils.ranks.plain`. The grader asks, one request at a time; each has a `request` number that its reply repeats.

| kind     | direction  | fields |
|----------|------------|--------|
| SETTINGS | to sandbox | those of `Settings`; sent once, first |
| READY    | to grader  | `pid`; or FAILED with `text` |
| CELL     | to sandbox | `request`, `number`, `source` |
| OUTPUT   | to grader  | `kind` (display_data, execute_result, clear), `data` {mime type: text} |
| SEEN     | to sandbox | nothing: the answer to each OUTPUT, which waits for it so that texts stay in order |
| DONE     | to grader  | `request`, `status` (ok, error, exited), `error` {kind, text, traceback, line, shown}, |
|          |            | `changed` (names of what cells have replaced in the process) |
| PROBE    | to sandbox | `request`, `payload` (a pickled call), `options` (keyword arguments of `launch`) |
| ANSWER   | to grader  | `request` and the run's fields, or `error` (a class of `utils.ranks.errors`), `text`, ... |

What is printed does not travel here: stdout and stderr are pipes, so that it survives the process.
"""

from __future__ import annotations

import dataclasses
from typing import Any

SETTINGS, READY, FAILED, CELL, OUTPUT, SEEN, DONE, PROBE, ANSWER = (bytes([c]) for c in b"SRFCOKDPA")

MOST_ANSWER = 256 << 20  # bytes of one reply
MOST_OUTPUT = 8 << 20  # bytes of one thing shown
MOST_TEXT = 20_000  # characters of one text of an error
MIME_TYPES = ("text/plain", "image/png")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How an answering process sets itself up before the first cell.

    work: the folder that cells run in, made if need be. submission: a folder whose files are copied there.
    environment: all there will be. uid: the user to become (where started as root). confined: give up every
    privilege and system calls that no answer needs. The others are limits of one process, None for none:
    address_bytes of address space besides what is loaded, file_bytes of one file, open_files, tasks (processes and
    threads of all together).
    """

    work: str
    environment: dict[str, str]
    submission: str | None = None
    uid: int | None = None
    confined: bool = True
    address_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    tasks: int | None = None

    def fields(self) -> dict[str, Any]:
        """The settings as the plain dict that travels."""
        return dataclasses.asdict(self)


def cut(text: str, most: int = MOST_TEXT) -> str:
    """`text`, its middle left out where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
