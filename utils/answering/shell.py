"""The student's namespace: an IPython shell in this process that runs cells as a notebook would, magics and all.

No start-up files, no history file, no sockets. What cells show goes to `emit` as plain data; what they print goes to
stdout and stderr as ever. An exception is kept, not printed.
"""

from __future__ import annotations

import builtins
import contextlib
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from ..ranks import magics
from ..trace.report import cell_name
from ..trace.sites import is_user_file
from .protocol import MIME_TYPES, MOST_OUTPUT, cut

Emit = Callable[[str, dict[str, str]], None]


def trimmed(data: dict[str, Any]) -> dict[str, str]:
    """Of what an object offers to show, its text and its PNG picture, within bounds."""
    kept = {}
    for kind in MIME_TYPES:
        value = data.get(kind)
        if isinstance(value, bytes):
            import base64

            value = base64.b64encode(value).decode()
        if isinstance(value, str) and (kind == "text/plain" or len(value) < MOST_OUTPUT // 2):
            kept[kind] = cut(value) if kind == "text/plain" else value
    return kept


class _Publisher(DisplayPublisher):
    def publish(self, data: dict[str, Any], metadata: Any = None, *_: Any, **__: Any) -> None:
        self.shell.emit("display_data", trimmed(data))

    def clear_output(self, wait: bool = False) -> None:
        self.shell.emit("clear", {})


class _Hook(DisplayHook):
    def write_output_prompt(self) -> None:
        """A notebook writes the prompt, not the cell."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        self.shell.emit("execute_result", trimmed(format_dict))

    def finish_displayhook(self) -> None:
        self._is_active = False


class Shell(InteractiveShell):
    """`run(number, source)` runs a cell; `user_ns` holds what the cells define."""

    emit: Emit
    shown: list[str]
    leaving = False

    @classmethod
    def make(cls, emit: Emit) -> Shell:
        """The one shell of this process; `emit(kind, data)` is told of everything that cells show."""
        config = Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}})
        shell = cls.instance(
            config=config, displayhook_class=_Hook, display_pub_class=_Publisher, colors="nocolor", autoindent=False
        )
        shell.emit, shell.shown = emit, []
        builtins.input = _no_input
        if "matplotlib.pyplot" in sys.modules:  # loaded before there was a shell to tie figures to
            with contextlib.suppress(Exception):
                shell.enable_matplotlib("inline")
        magics.load()
        return shell

    def ask_exit(self) -> None:
        """`exit()` in a cell: the process ends once the cell is over."""
        self.leaving = True

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        self.shown = [str(line) for line in stb]

    def run(self, number: int, source: str) -> dict[str, Any]:
        """Run cell `number`; returns the fields of DONE but for `request`.

        An interrupt (SIGINT) ends the cell with KeyboardInterrupt; outside cells it is ignored.
        """
        self.execution_count, self.shown = number, []
        error: BaseException | None = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            done = self.run_cell(source, store_history=True)
            error = done.error_in_exec or done.error_before_exec
        except BaseException as raised:  # what a cell did to the shell itself
            error = raised
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        status = "exited" if self.leaving else "ok" if error is None else "error"
        told = None if error is None else describe(error, self.name_of(number, source), self.shown)
        return {"status": status, "error": told}

    def name_of(self, number: int, source: str) -> str:
        """The file name under which IPython compiles cell `number`."""
        return str(self.compile.get_code_name(source, self.transform_cell(source), number))


def _no_input(*_: Any) -> str:
    raise RuntimeError("input() has nobody to ask when a notebook is checked; write the value into the cell")


def describe(error: BaseException, cell: str, shown: list[str]) -> dict[str, Any]:
    """An exception in plain data: kind, text, traceback of the student's frames, the line of the cell, as shown.

    `cell` is the file name that the running cell's code has.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    lines = [f.lineno for f in frames if f.filename == cell and f.lineno]
    if isinstance(error, SyntaxError) and error.filename == cell and error.lineno:
        lines.append(error.lineno)
    text = _text_of(error)
    told = "".join(traceback.format_list(frames)) + f"{type(error).__name__}: {text}"
    for file in {f.filename for f in frames}:
        told = told.replace(f'File "{file}"', cell_name(file))
    return {
        "kind": type(error).__name__[:200], "text": text, "traceback": cut(told),
        "line": int(lines[-1]) if lines else None, "shown": cut("\n".join(shown)),
    }  # fmt: skip


def _text_of(error: BaseException) -> str:
    try:
        return cut(str(error))
    except Exception as worse:
        return f"(its text could not be made: {type(worse).__name__})"
