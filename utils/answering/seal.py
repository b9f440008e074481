"""What student code has replaced in this process: functions of torch, numpy, Python and this package.

A list of them is made before any cell runs; after each cell, what is no longer the same is told to the grader, who
shows it to a person. It costs nobody marks, and whoever replaces things cleverly can hide it: the grader's process,
where answers are judged, is another one.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

MODULES = ("builtins", "torch", "torch.distributed", "torch.distributed.distributed_c10d", "numpy", "numpy.testing",
           "cloudpickle", "json", "pickle", "linecache", "traceback")  # fmt: skip
CLASSES = ("torch.Tensor", "numpy.testing.TestCase")
OWN = "utils"
LEFT_OUT = {"input", "display", "exit", "quit", "get_ipython"}  # a notebook has its own
MOST = 20

_seen: dict[str, Any] = {}


def take() -> None:
    """Remember what is there now."""
    _seen.clear()
    _seen.update(_now())


def changed() -> list[str]:
    """Names of what has been replaced since, in order; also the import system and tracing, where they were changed."""
    now = _now()
    names = {name for name, value in _seen.items() if name not in now or now[name] is not value}
    if sys.gettrace() is not None or sys.getprofile() is not None:
        names.add("sys.settrace")
    return sorted(names)[:MOST]


def _now() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name in MODULES or name.partition(".")[0] == OWN):
            _members(name, module, found, deep=name.partition(".")[0] == OWN)
    for entry in ("meta_path", "path_hooks"):
        for i, hook in enumerate(getattr(sys, entry)[:1]):
            found[f"sys.{entry}[{i}]"] = hook
    return found


def _members(name: str, owner: Any, found: dict[str, Any], deep: bool) -> None:
    for key, value in list(vars(owner).items()):
        kind = type(value)  # asked of the type: some objects warn when they are asked for an attribute
        if key in LEFT_OUT or issubclass(kind, ModuleType) or not callable(value):
            continue
        found[f"{name}.{key}"] = value
        if kind is FunctionType and deep:
            found[f"{name}.{key}'s code"] = value.__code__
        if issubclass(kind, type) and ((deep and value.__module__ == name) or f"{name}.{key}" in CLASSES):
            _members(f"{name}.{key}", value, found, deep=False)
