"""Cells that grading leaves out: those that stand as released and only show something, such as a measurement's plot.

A measurement tells of the student's machine; while a class is graded it would tell of a busy grader, and take a quarter
of the time. A cell is left out only where no other cell names anything that it defines and its own lines change nothing
outside it. Whatever a student has changed is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from autograder.kept import kept_releases
from utils.selfcheck.notebook import kind_of

WHY = "not run in grading: nothing else uses this cell, and its measurement would be of the grader's machine"
_WORD = re.compile(r"\w+")
# calls that may change what other cells meet: seeds, settings, files, the environment
_SETTERS = re.compile(r"set|set_\w+|use|rc|seed|manual_seed|register\w*|filterwarnings|simplefilter|putenv|chdir|exec"
                      r"|eval|setattr|delattr|globals|write\w*|save\w*|makedirs|mkdir|remove|unlink|\w+_")  # fmt: skip
_GROWS = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "clear", "sort", "reverse")
_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
              ast.GeneratorExp)  # fmt: skip
_HARMLESS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Expr, ast.For,
             ast.If, ast.With, ast.Assert, ast.Pass)  # fmt: skip


def released_texts(data: Path, assignment: str) -> frozenset[str]:
    """The texts of all plain code cells in all releases kept of a lab; `assignment` may name an older one of it."""
    lab = assignment.partition(".")[0]
    folder = data / "kept" / lab
    notes = tuple(sorted((str(p), p.stat().st_mtime_ns) for p in folder.glob("*/release.ipynb")))
    return _texts(data, lab, notes)


@lru_cache(maxsize=8)
def _texts(data: Path, lab: str, notes: tuple[tuple[str, int], ...]) -> frozenset[str]:
    cells = [cell for kept in kept_releases(data, lab) for cell in kept.release.cells]
    return frozenset(cell.source for cell in cells if cell.cell_type == "code" and kind_of(cell) == "plain")


def idle_cells(cells: list[Any], released: frozenset[str]) -> set[int]:
    """Indices of the cells that only show something.

    Example: of the cells `x = 1`, `y = 2; print(y)` and a task's `def answer(): return x`, the second one.
    """
    code = {i: cell["source"] for i, cell in enumerate(cells) if cell["cell_type"] == "code"}
    plain = [i for i in code if kind_of(cells[i]) == "plain" and code[i] in released]
    bound = {i: names for i in plain if (names := _bound(code[i])) is not None}
    words = {i: set(_WORD.findall(text)) for i, text in code.items()}
    idle = set(bound)
    while needed := {i for i in idle if any(bound[i] & words[j] for j in code if j != i and j not in idle)}:
        idle -= needed
    return idle


def _bound(source: str) -> set[str] | None:
    """The names that a cell defines; None where it may change something else too."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None  # a magic, say
    if not all(isinstance(node, _HARMLESS) for node in tree.body):
        return None
    own = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    if any(_changes(node, own) for node in ast.walk(tree)):
        return None
    names: set[str] = set()
    for node in _outside_scopes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return None if "*" in names else names


def _outside_scopes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _OWN_SCOPE):
            yield from _outside_scopes(child)


def _changes(node: ast.AST, own: set[str]) -> bool:
    """Whether a node of a cell, inside its functions too, may change what is not among the cell's `own` names."""
    if isinstance(node, (ast.Global, ast.Nonlocal, ast.Delete)):
        return True
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        return _root(node) not in own
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _GROWS or _SETTERS.fullmatch(name):
            return not isinstance(node.func, ast.Attribute) or _root(node.func) not in own
    return False


def _root(node: ast.AST) -> str:
    """The name that an attribute or an element is of: `ax` for `ax.lines[0].set_color`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
