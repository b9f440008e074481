"""Was something written by hand, or did code run that does it ready-made?

Evidence: the files of Python code that ran meanwhile, seen by a profile function in the thread of the call. Left out:
code in C, and other threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from utils.checks.failed import CheckFailed


def watched(fn: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    """fn(*args), and the files of Python code that ran meanwhile, by the last three parts of their paths.

    >>> watched(lambda: torch.optim.SGD([torch.ones(1)], lr=1).step())[1]  # doctest: +SKIP
    ['torch/optim/optimizer.py', 'torch/optim/sgd.py', ...]
    """
    seen = set()
    sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_filename))
    try:
        value = fn(*args)
    finally:
        sys.setprofile(None)
    return value, sorted("/".join(name.split("/")[-3:]) for name in seen)


def written_without(files: Sequence[str], forbidden: Sequence[str], what: str) -> None:
    """None of the `files` that ran is a forbidden one (a part of its path).

    >>> written_without(["torch/optim/adam.py"], ["torch/optim/"], "step")
    Traceback (most recent call last):
    CheckFailed: step ran code of torch/optim/adam.py; write it yourself, without.
    """
    for name in files:
        if any(part in name for part in forbidden):
            raise CheckFailed(f"{what} ran code of {name}; write it yourself, without.")
