"""Sandboxes for tests, and short ways to ask what student code sees."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autograder.sandbox import Channel, Limits, Sandbox, open_sandbox, why_not
from utils.ranks.ship import pack


def see(channel: Channel, code: str, expression: str, limit: float = 30) -> Any:
    """Run `code` in a cell, then evaluate an expression of plain Python values there."""
    run = channel.cell(1, f"{code}\nprint('<<', repr(({expression})), '>>', flush=True)", limit)
    assert run.status == "ok", (run.status, run.ename, run.evalue)
    return ast.literal_eval(printed(run).rpartition("<<")[2].rpartition(">>")[0].strip())


def printed(run: Any) -> str:
    """All that a cell printed."""
    return "".join(o["text"] for o in run.outputs if o["output_type"] == "stream")


def ask(channel: Channel, fn: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
    """Run a probe; a function of a test file stands in for one of a test cell."""
    fn.__module__ = "__main__"
    payload = pack(fn, args, {})[0]
    return channel.probe(payload, {"ranks": 2, "timeout": 20.0, **options}, 40)


def need(kind: str) -> None:
    """Skip a test where a sandbox cannot be had; that it can be had is a test of its own."""
    if reason := why_not(kind):
        pytest.skip(reason)


@pytest.fixture
def opened() -> Iterator[Callable[..., tuple[Sandbox, Channel]]]:
    """`opened(kind=..., folder=..., **limits)`: a started sandbox, closed after the test."""
    boxes: list[Sandbox] = []

    def start(kind: str = "bubblewrap", folder: Any = None, hidden: Any = (), **limits: Any) -> Any:
        need(kind)
        boxes.append(open_sandbox(kind, folder, Limits(**limits), hidden))
        return boxes[-1], boxes[-1].start()

    yield start
    for box in boxes:
        box.close()


@pytest.fixture(scope="module")
def inside() -> Iterator[Channel]:
    """One sandbox for all tests of a file that only look around in it."""
    need("bubblewrap")
    with open_sandbox("bubblewrap") as box:
        yield box.start()
