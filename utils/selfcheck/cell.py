"""One cell on its way through a kernel: its messages, its limits, and what it came to."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from utils.selfcheck.outputs import OutputLog

if TYPE_CHECKING:
    from utils.selfcheck.session import KernelSession

INTERRUPT_S = 4.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FRAME = re.compile(r"(?:Cell |Input )In ?\[(\d+)\],? ?(?:in )?(?:line:? ?)?(\d+)")


@dataclass
class CellRun:
    """What happened to one cell.

    status is ok, error, stopped (time limit), flooded (too much output), or died (the process ended);
    line is the 1-based line of this cell that was running when it failed, where the traceback tells.
    """

    status: str
    seconds: float = 0.0
    ename: str = ""
    evalue: str = ""
    line: int | None = None
    exit_code: int | None = None
    outputs: list[dict[str, Any]] = field(default_factory=list)


class Execution:
    """One execute request and what the kernel says about it."""

    def __init__(self, session: KernelSession, code: str, limit: float) -> None:
        self.session, self.limit = session, limit
        self.log = OutputLog()
        self.start = time.monotonic()
        self.msg_id = session.send(code)
        self.run = CellRun("ok")
        self.idle = self.replied = self.leaving = False

    def result(self) -> CellRun:
        self._wait(self.limit)
        if self.leaving:
            self._leave()
        elif not self._finished:
            self._stop()
        self.run.seconds = time.monotonic() - self.start
        self.run.outputs = self.log.outputs()
        return self.run

    @property
    def _finished(self) -> bool:
        return self.idle and self.replied

    def _wait(self, seconds: float) -> None:
        """Take messages until the cell has finished, time is up, output floods, or the process ends."""
        give_up = time.monotonic() + seconds
        while not self._finished and time.monotonic() < give_up:
            heard = self._take(0.2)
            if not heard and not self.session.alive:
                self.session.await_exit(1.0)
                return
            if self.log.flooded and self.run.status == "ok":
                return
            # The output channel may drop messages of a flood, the last among them.
            if self.replied and not heard:
                self.idle = True

    def _stop(self) -> None:
        if self.session.alive:
            reason = "flooded" if self.log.flooded else "stopped"
            self.run.status = reason
            for _ in range(2):
                self.session.interrupt()
                self._wait(INTERRUPT_S)
                if self._finished:
                    return
            if self.session.alive:
                self.session.kill()
                self.session.await_exit(5.0)
                self.log.error("Killed", "the process did not react to an interrupt and was killed", [])
                return
        self._died()

    def _leave(self) -> None:
        self.session.await_exit(INTERRUPT_S)
        if self.session.alive:
            self.session.kill()
            self.session.await_exit(INTERRUPT_S)
        self._died()

    def _died(self) -> None:
        self.run.status = "died"
        self.run.exit_code = self.session.exit_code

    def _take(self, seconds: float) -> bool:
        shell, iopub = self.session.poll(seconds)
        if shell and shell["parent_header"].get("msg_id") == self.msg_id:
            self.replied = True
            self._reply(shell["content"])
        if iopub and iopub["parent_header"].get("msg_id") == self.msg_id:
            self._show(iopub["msg_type"], iopub["content"])
        return bool(shell or iopub)

    def _reply(self, content: dict[str, Any]) -> None:
        # IPython's exit() answers politely and ends the process a moment later.
        self.leaving = any(note.get("source") == "ask_exit" for note in content.get("payload", []))
        if content["status"] != "ok":
            if self.run.status == "ok":
                self.run.status = "error"
            self.run.ename, self.run.evalue = content.get("ename", ""), content.get("evalue", "")
            self.run.line = _line_of(content.get("traceback", []), content.get("execution_count"))

    def _show(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self.log.stream(content["name"], content["text"])
        elif kind in ("display_data", "execute_result"):
            output = {"output_type": kind, "data": content["data"], "metadata": content["metadata"]}
            if kind == "execute_result":
                output["execution_count"] = content["execution_count"]
            self.log.rich(output)
        elif kind == "error":
            self.log.error(content["ename"], content["evalue"], content["traceback"])
        elif kind == "clear_output":
            self.log.clear()
        elif kind == "status" and content["execution_state"] == "idle":
            self.idle = True


def _line_of(traceback: list[str], count: int | None) -> int | None:
    """The last line of cell number `count` that an IPython traceback names."""
    frames = FRAME.findall(ANSI.sub("", "\n".join(traceback)))
    lines = [int(line) for cell, line in frames if count is None or int(cell) == count]
    return lines[-1] if lines else None
