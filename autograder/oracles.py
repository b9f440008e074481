"""Oracles of a lab's tests, run once for all submissions: what `check.reference` brought back is kept in this process.

An oracle sees nothing of a submission, its ranks are seeded, and its inputs are the test's own: the same call gives the
same run. What is handed out is a copy, so that no test can change another's. An oracle that fails (a rank of it died,
or took too long on a busy machine) is asked again, and never fails the student's test.
"""

from __future__ import annotations

import copy
import hashlib
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from utils.ranks.errors import LaunchError
from utils.ranks.ship import pack

TRIES = 3
MOST = 200  # runs kept
MOST_BYTES = 64 << 20  # of tensors in one that is kept

_kept: OrderedDict[str, Any] = OrderedDict()


class OracleFailed(Exception):
    """An oracle failed each time it was asked: the lab or the machine is at fault, and nobody can be graded by it."""


@contextmanager
def kept_oracles() -> Iterator[None]:
    """While this holds, `check.reference` asks for no run a second time."""
    from utils import check  # loads torch, which a warm process that is to start cold has no use for

    before = check.reference
    check.reference = _keeping(before)
    try:
        yield
    finally:
        check.reference = before


def _keeping(reference: Callable[..., Any]) -> Callable[..., Any]:
    def kept_reference(fn: Callable[..., Any], *args: Any, ranks: int | None = 4, **options: Any) -> Any:
        name = _name(fn, args, {"ranks": ranks, **options})
        if name in _kept:
            _kept.move_to_end(name)
            return copy.deepcopy(_kept[name])
        run = _asked(reference, fn, *args, ranks=ranks, **options)
        if _size(run.values) <= MOST_BYTES:
            _kept[name] = copy.deepcopy(run)
            while len(_kept) > MOST:
                _kept.popitem(last=False)
        return run

    return kept_reference


def _asked(reference: Callable[..., Any], fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The oracle's run. Raises OracleFailed where it failed TRIES times."""
    for _ in range(TRIES):
        try:
            return reference(fn, *args, **options)
        except LaunchError as error:
            last = error
    name = getattr(fn, "__name__", repr(fn))
    raise OracleFailed(f"the lab's own {name} failed {TRIES} times on its ranks, the last time with: {last}")


def _name(fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """A hash of the function with all that it uses, its arguments, and how it is launched."""
    payload, _ = pack(fn, args, options)
    return _digest(payload)


def _digest(payload: bytes) -> str:
    """A hash of what a pickle says, but for which equal strings in it are one object: that is chance."""
    digest = hashlib.sha256()
    memo: list[tuple[str, Any]] = []
    objects = 0
    last: tuple[str, Any] = ("", None)
    for op, value, _ in pickletools.genops(payload):
        if op.name == "MEMOIZE":
            if last[0] != "text":
                objects += 1
                last = ("object", objects)
            memo.append(last)
        elif op.name != "FRAME":
            last = ("text" if isinstance(value, (str, bytes)) else op.name, value)
            last = memo[value] if op.name in ("BINGET", "LONG_BINGET") else last
            digest.update(repr(last).encode())
    return digest.hexdigest()


def _size(values: Any) -> int:
    """Bytes of the tensors in plain data."""
    if isinstance(values, dict):
        return sum(map(_size, values.values()))
    if isinstance(values, (list, tuple)):
        return sum(map(_size, values))
    return getattr(values, "nbytes", 0)
