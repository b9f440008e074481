"""Shipping a function from a cell to a rank: cloudpickle, its cells' source, and the name of what cannot travel."""

from __future__ import annotations

import importlib
import io
import linecache
import os
import pickle
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import cloudpickle.cloudpickle as cp

from .errors import BadLaunch


def _submodules(code: CodeType, dependencies: Any) -> list[ModuleType]:
    """What cloudpickle's function of this use finds: loaded submodules of the packages `code` uses, all of whose names
    it names. That one looks at every module there is, for each function: 2 to 4 ms with torch loaded.
    """
    found: dict[str, ModuleType] = {}
    packages = [d for d in dependencies if isinstance(d, ModuleType) and getattr(d, "__package__", None)]
    left = [package.__name__ for package in packages]
    while left:
        inside = left.pop()
        for name in code.co_names:
            full = f"{inside}.{name}"
            if full in sys.modules and full not in found:
                found[full] = sys.modules[full]
                left.append(full)
    return list(found.values())


if hasattr(cp, "_find_imported_submodules"):
    cp._find_imported_submodules = _submodules


class _Pickler(cloudpickle.Pickler):
    """Also collects the file names of the code it ships, so that tracebacks in a rank can show the student's line."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.files: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            build, args = self.dispatch_table[CodeType](obj)[:2]
            # cloudpickle forgets where code came from, and a traceback without the student's line teaches nothing
            return build, tuple(obj.co_filename if a == "<dynamic-code>" else a for a in args)
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType and sys.modules.get(obj.__name__) is obj:
            return importlib.import_module, (obj.__name__,)  # torch.ops and the like, which pickle does not know
        return super().reducer_override(obj)


def pack(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The bytes of a call, and the source of the cells it comes from. Raises BadLaunch naming the variable at fault."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump((fn, args, kwargs))
    except Exception as error:
        raise BadLaunch(_explain(fn, args, kwargs, error)) from None
    return file.getvalue(), _sources(pickler.files)


def _sources(files: set[str]) -> dict[str, str]:
    """The text of cells among `files`: they exist in linecache only, never on disk."""
    found = {}
    for name in files:
        entry = linecache.cache.get(name)
        if entry is not None and len(entry) == 4 and not os.path.exists(name):
            found[name] = "".join(entry[2])
    return found


def _can_ship(value: Any) -> bool:
    try:
        _Pickler(io.BytesIO()).dump(value)
    except Exception:
        return False
    return True


def _explain(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> str:
    name = getattr(fn, "__name__", repr(fn))
    for where, value in _parts(fn, args, kwargs):
        if not _can_ship(value):
            inner = _deeper(value, where)
            return f"{name} cannot be shipped to the ranks: {inner}. Make it inside {name}, or leave it out."
    return f"{name} cannot be shipped to the ranks: {type(error).__name__}: {error}"


def _parts(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    parts = [(f"its argument {i}", a) for i, a in enumerate(args)]
    parts += [(f"its argument {k}", v) for k, v in kwargs.items()]
    return parts + _captured(fn)


def _captured(fn: Any) -> list[tuple[str, Any]]:
    """What a function carries along: closure variables, globals it names, defaults; or the attributes of an object."""
    if not isinstance(fn, FunctionType):
        return [(f"its attribute {k}", v) for k, v in getattr(fn, "__dict__", {}).items()]
    parts = [
        (f"the variable {n}", c.cell_contents)
        for n, c in zip(fn.__code__.co_freevars, fn.__closure__ or ())
        if _filled(c)
    ]
    parts += [(f"the variable {n}", fn.__globals__[n]) for n in sorted(names_in(fn.__code__)) if n in fn.__globals__]
    return parts + [("a default argument", d) for d in fn.__defaults__ or ()]


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def names_in(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= names_in(const)
    return names


def _deeper(value: Any, where: str, depth: int = 0) -> str:
    """Follow functions and containers down to the thing itself: `the variable log (a TextIOWrapper)`."""
    if depth < 4 and isinstance(value, FunctionType):
        for inner, part in _captured(value):
            if part is not value and not isinstance(part, ModuleType) and not _can_ship(part):
                return _deeper(part, f"{inner} (used by {value.__name__})", depth + 1)
    if depth < 4 and isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            if not _can_ship(part):
                return _deeper(part, f"{where}[{i}]", depth + 1)
    if depth < 4 and isinstance(value, dict):
        for key, part in value.items():
            if not _can_ship(part):
                return _deeper(part, f"{where}[{key!r}]", depth + 1)
    return f"{where} is a {type(value).__name__}, which cannot be copied to another process"
