"""Stepping one rank under pdb from the notebook, while the others wait with no time limit.

pdb runs inside the rank; its prompt travels to the notebook cell, which asks the person for the next command.
"""

from __future__ import annotations

import pdb
import sys
from typing import Any


class _Remote:
    """A file that pdb reads commands from and writes text to, over the rank's socket."""

    def __init__(self, channel: Any) -> None:
        self.channel, self.text = channel, ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        return

    def readline(self) -> str:
        said, self.text = self.text, ""
        answer = self.channel.ask(said)
        return "" if answer is None else answer + "\n"


def run_under_pdb(channel: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `fn`, stopped at its first line; `c` lets it run, `q` ends the launch."""
    remote = _Remote(channel)
    debugger = pdb.Pdb(stdin=remote, stdout=remote, nosigint=True)  # type: ignore[arg-type]
    debugger.use_rawinput = False
    debugger.prompt = "(Pdb) "

    def stop(*_: Any, **__: Any) -> None:
        debugger.set_trace(sys._getframe(1))

    sys.breakpointhook = stop
    return debugger.runcall(fn, *args, **kwargs)
