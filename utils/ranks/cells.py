"""A function of a notebook (or a script), taken from it unchanged, to run where the notebook is not open.

    load("lab01_allreduce.ipynb:on_the_cluster")                       # a function that takes no argument
    load("lab01_allreduce.ipynb:probe_ring_sum([(12, float32, 0, 0)])")  # or a call, or any expression with calls

Of a notebook only what the call needs is run: the imports, functions, classes and assignments of the names that it
uses, and of those that these use, in the notebook's order; so of two definitions the later one holds. Its tests, plots
and launches are left alone. A script or a module is run as Python runs it.

Left out: loose calls in cells (`torch.manual_seed(0)`), which belong inside the function; names made by `exec` and the
like; `from x import *` is always run.
"""

from __future__ import annotations

import ast
import importlib
import json
import linecache
import os
import re
import symtable
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "__ranks__"  # what the code's module is called; in sys.modules, so that its classes can be pickled


@dataclass(frozen=True)
class Statement:
    """One statement of the outermost level of a cell: the names it gives a value to, and those it uses."""

    file: str
    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]


def load(target: str) -> Callable[[], Any]:
    """The function or call that `notebook.ipynb:...`, `file.py:...` or `module:...` stands for.

    Raises:
        SystemExit: with a sentence, when there is no such thing.
    """
    found = re.match(r"(.+?\.(?:ipynb|py)|[\w.]+):(.+)$", target, re.DOTALL)
    if not found:
        raise SystemExit(f"{target}: write file.py:function, notebook.ipynb:function or module:function.")
    place, call = found.groups()
    try:
        node = ast.parse(call.strip(), mode="eval").body
    except SyntaxError as error:
        raise SystemExit(f"{call} cannot be read as a function or a call: {error.msg}.") from None
    space = _space(place, call)
    code = compile(ast.Expression(node), "<target>", "eval")
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return lambda: eval(code, space)
    try:
        function = eval(code, space)
    except (NameError, AttributeError):
        function = None
    if not callable(function):
        raise SystemExit(f"{place} has no function {call}.")
    return function


def _space(place: str, call: str) -> dict[str, Any]:
    """The names among which the call is looked up."""
    if not place.endswith((".py", ".ipynb")):
        sys.path.insert(0, os.getcwd())
        try:
            return vars(importlib.import_module(place))
        except ModuleNotFoundError as error:
            raise SystemExit(f"{place} cannot be imported: {error}. Start this in the folder that holds it.") from None
    path = Path(place).resolve()
    if not path.is_file():
        raise SystemExit(f"{place} does not exist here ({os.getcwd()}); every host needs the same file.")
    sys.path.insert(0, str(path.parent))  # as for a script, and for a notebook's kernel
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    module.__file__ = str(path)
    space = vars(module)
    if path.suffix == ".py":
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
        return space
    statements, unread = read_notebook(path)
    wanted = needed(statements, names_of(ast.parse(call.strip()))[1])
    for statement in wanted:
        _run(statement, place, call, space)
    if unread and not wanted:
        raise SystemExit(f"{place} does not define {call}; left out as no Python: {'; '.join(unread)}.")
    return space


def _run(statement: Statement, place: str, call: str, space: dict[str, Any]) -> None:
    code = compile(ast.Module([statement.node], []), statement.file, "exec")
    try:
        exec(code, space)
    except Exception as error:
        line = linecache.getline(statement.file, statement.node.lineno).strip()
        where = f"{Path(statement.file).name}, line {statement.node.lineno} ({line})"
        raise SystemExit(f"{call} needs {where}, which failed: {type(error).__name__}: {error}") from None


def read_notebook(path: Path) -> tuple[list[Statement], list[str]]:
    """The statements of all code cells, and a few words on each cell that is no Python."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"{path.name} is not a notebook of version 4: open and save it in JupyterLab.") from None
    statements, unread = [], []
    for number, source in enumerate(sources, 1):
        file = f"{path}, cell {number}"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # tracebacks show the line
        try:
            tree = _parsed(source)
        except SyntaxError as error:
            unread.append(f"cell {number}, line {error.lineno}")
            continue
        statements += [Statement(file, node, *names_of(node)) for node in tree.body]
    return statements, unread


def _parsed(source: str) -> ast.Module:
    """A cell as Python; its magics become calls, which nothing needs."""
    try:
        return ast.parse(source)
    except SyntaxError:
        try:
            from IPython.core.inputtransformer2 import TransformerManager
        except ImportError:
            raise
        return ast.parse(TransformerManager().transform_cell(source))


def needed(statements: list[Statement], names: frozenset[str]) -> list[Statement]:
    """The statements that `names` need, in order."""
    wanted, chosen = set(names) | {"*"}, set()
    grown = True
    while grown:
        grown = False
        for at, statement in enumerate(statements):
            if at not in chosen and statement.binds & wanted:
                chosen.add(at)
                wanted |= statement.uses
                grown = True
    return [statements[at] for at in sorted(chosen)]


def names_of(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """The global names that a piece of code gives values to, and those it uses."""
    body = [node] if isinstance(node, ast.stmt) else list(getattr(node, "body", []))
    top = symtable.symtable(ast.unparse(ast.Module(body, [])), "<cell>", "exec")
    binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    for table in _below(top):
        uses |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    for inner in body:
        binds -= {n.id for loop in _loops(inner) for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        binds |= set(_changed(inner))
    return frozenset(binds), frozenset(uses)


def _below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _below(child)


def _loops(node: ast.AST) -> Iterator[ast.For]:
    """Loops outside functions: a test's `for ranks in ...` is no definition of `ranks`."""
    if isinstance(node, ast.For):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _loops(child)


def _changed(node: ast.AST) -> Iterator[str]:
    """Names whose parts a statement changes (`cases[3] = ...`, `ZeroOne.step = faster`), and `*` for a star import."""
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        yield "*"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        root: ast.AST = node
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        if isinstance(root, ast.Name):
            yield root.id
    for child in ast.iter_child_nodes(node):
        yield from _changed(child)
