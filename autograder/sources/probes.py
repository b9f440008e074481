"""The two halves of a test cell: find the probes, hold the verdict away from the student's names.

A probe is a def or a lambda that `launch` gets as its first argument; functions that only probes call belong
to them. All other code of a test cell is the verdict. It may use what the cell itself, the shared cells and
Python define, and nothing else: it will run where no code of a student ever ran. What a probe may not do is
in `comparing.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from autograder.sources.comparing import compared
from autograder.sources.scopes import Function, Scopes, Use, read_scopes, used_too_early

PYTHON_NAMES = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__) | {
    "__name__"
}
# Ways to reach a name without writing it, which would get round every rule here.
HIDING_NAMES = {
    "eval",
    "exec",
    "globals",
    "locals",
    "vars",
    "get_ipython",
    "compile",
    "__import__",
    "__builtins__",
}
HIDING_ATTRIBUTES = {
    "modules",
    "user_ns",
    "__globals__",
    "f_globals",
    "f_locals",
    "_getframe",
    "currentframe",
}
HIDING_MODULES = {"__main__", "builtins", "importlib", "inspect"}
_EXPECTED = re.compile(r"^(expected|expect|want|wanted|truth|oracle|correct)s?(_.*)?$")

Problem = tuple[int, str]


@dataclass(frozen=True)
class LabNames:
    """What the cells of a lab define: names of shared cells, of solution cells and of plain cells.

    launchers are the shared functions that hand their first parameter on to `launch`; comparers the shared
    functions that compare what they are given.
    """

    shared: frozenset[str] = frozenset()
    solution: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    launchers: frozenset[str] = frozenset({"launch"})
    comparers: frozenset[str] = frozenset()

    @property
    def student(self) -> frozenset[str]:
        return (self.solution | self.plain) - self.shared


@dataclass
class Halves:
    """A test cell taken apart: `probes` are what launch gets, `probe_side` those and what only they call."""

    scopes: Scopes
    probes: list[Function] = field(default_factory=list)
    probe_side: set[Function] = field(default_factory=set)
    verdict: set[Function] = field(default_factory=set)
    handed_over: set[ast.AST] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def launcher_names(tree: ast.Module, known: frozenset[str] = frozenset({"launch"})) -> frozenset[str]:
    """All names of `launch` here: import aliases, and functions that hand their first parameter on to it."""
    names = set(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "launch"}
    grown = True
    while grown:
        grown = False
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in names and node.args.args:
                first = node.args.args[0].arg
                calls = [call for call in ast.walk(node) if is_launch(call, names)]
                if any(isinstance(fn := first_argument(call), ast.Name) and fn.id == first for call in calls):
                    names.add(node.name)
                    grown = True
    return frozenset(names)


def is_launch(node: ast.AST, launchers: set[str] | frozenset[str]) -> bool:
    """Whether a node is a call of launch, by one of its names or as an attribute (`utils.launch(...)`)."""
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    return (isinstance(func, ast.Name) and func.id in launchers) or (
        isinstance(func, ast.Attribute) and func.attr == "launch"
    )


def first_argument(call: ast.Call) -> ast.expr | None:
    """What a call of launch runs."""
    if call.args:
        return call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg == "fn"), None)


def hidden_uses(tree: ast.Module) -> Iterator[Problem]:
    """Uses of eval, globals() and the like, which reach a name without writing it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in HIDING_NAMES:
            yield (
                node.lineno,
                f"uses `{node.id}`, which hides the names it reaches; write the names themselves.",
            )
        elif isinstance(node, ast.Attribute) and node.attr in HIDING_ATTRIBUTES:
            yield (
                node.lineno,
                f"uses `.{node.attr}`, which hides the names it reaches; write the names themselves.",
            )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            )
            for module in modules:
                if module.split(".")[0] in HIDING_MODULES:
                    yield node.lineno, f"imports `{module}`, which hides the names it reaches."
            if any(alias.name == "*" for alias in node.names):
                yield node.lineno, f"imports * from `{modules[0]}`; name what it needs."


def check_test(tree: ast.Module, names: LabNames) -> list[Problem]:
    """Everything in a test cell that breaks a rule, as (line in the cell, what is wrong)."""
    halves = take_apart(tree, names)
    problems = halves.problems + list(hidden_uses(tree))
    problems += _bindings(halves, names)
    for use in halves.scopes.uses:
        problems += _check_use(use, halves, names)
    problems += compared(halves.scopes, halves.probe_side, halves.probes, names.student, names.comparers)
    if not touched(halves, names) and not problems:
        problems.append((1, "has no probe that uses a student's name, so it tests nothing of the student's."))
    return sorted(set(problems))


def touched(halves: Halves, names: LabNames) -> set[str]:
    """The student's names that the probes of a test cell use."""
    uses = [use for use in halves.scopes.uses if use.owner in halves.probe_side and use.binder is None]
    return {use.name for use in uses if use.name in names.student}


def take_apart(tree: ast.Module, names: LabNames) -> Halves:
    """Find the probes of a test cell and sort its functions into probe side and verdict."""
    halves = Halves(read_scopes(tree))
    launchers = launcher_names(tree, names.launchers)
    for node in ast.walk(tree):
        if is_launch(node, launchers):
            _take_probe(node, halves, names)
    _refuse_other_names_of_launch(tree, halves, launchers)
    _refuse_calls_of_looped(tree, halves)
    halves.probe_side = _reached(halves, halves.probes)
    roots = [f for f in halves.scopes.functions if f not in halves.probe_side]
    called = {g for use in halves.scopes.uses if use.owner in roots for g in _called(use, halves)}
    halves.verdict = _reached(halves, [*roots, *called])
    return halves


def _take_probe(call: ast.Call, halves: Halves, names: LabNames) -> None:
    runs, scopes = first_argument(call), halves.scopes
    if isinstance(runs, ast.Lambda):
        halves.probes.append(scopes.function_of(runs))
        return
    if isinstance(runs, ast.Name):
        use = next(use for use in scopes.uses if use.node is runs)
        definitions = scopes.definitions(use) or _looped_probes(use, halves)
        handed_on = use.binder is not None and use.name in use.binder.params
        if definitions or handed_on or (use.binder is None and use.name in names.shared):
            halves.probes += definitions
            halves.handed_over.add(runs)
            return
        if use.name in names.student:
            why = f"gives launch `{use.name}` itself; give it a probe that calls it: lambda: {use.name}(...)."
            halves.problems.append((call.lineno, why))
            halves.handed_over.add(runs)
            return
    what = ast.unparse(runs) if runs is not None else "nothing"
    halves.problems.append(
        (call.lineno, f"gives launch `{what}`; its first argument is a lambda or a def of this cell.")
    )


def _looped_probes(variable: Use, halves: Halves) -> list[Function]:
    """The functions named in `for probe in (probe_a, probe_b): launch(probe)`, which are probes, too."""
    scopes = halves.scopes
    found = []
    for loop, owner in scopes.owner_of.items():
        if not isinstance(loop, ast.For | ast.comprehension) or owner is not variable.binder:
            continue
        targets = {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
        for use in scopes.uses if variable.name in targets else []:
            if any(use.node is part for part in ast.walk(loop.iter)) and scopes.definitions(use):
                halves.handed_over.add(use.node)
                found += scopes.definitions(use)
    return found


def _refuse_other_names_of_launch(tree: ast.Module, halves: Halves, launchers: frozenset[str]) -> None:
    called = {node.func for node in ast.walk(tree) if is_launch(node, launchers)}
    for use in halves.scopes.uses:
        if use.name == "launch" and use.node not in called:
            halves.problems.append((use.line, "gives `launch` another name; call it by its own."))


def _refuse_calls_of_looped(tree: ast.Module, halves: Halves) -> None:
    """A variable that loops over probes may only be given to launch."""
    looped = {(u.binder, u.name) for u in halves.scopes.uses if u.node in halves.handed_over and u.binder}
    for use in halves.scopes.uses:
        variable = (use.binder, use.name) in looped and not halves.scopes.definitions(use)
        if variable and use.node not in halves.handed_over:
            halves.problems.append((use.line, f"uses `{use.name}`, a probe, other than as what launch runs."))


def _called(use: Use, halves: Halves) -> list[Function]:
    return [] if use.node in halves.handed_over else halves.scopes.definitions(use)


def _reached(halves: Halves, roots: list[Function]) -> set[Function]:
    """The roots, what they call, and what is defined inside any of these."""
    reached, todo = set(), list(roots)
    while todo:
        function = todo.pop()
        if function in reached:
            continue
        reached.add(function)
        todo += [g for use in halves.scopes.uses if use.owner is function for g in _called(use, halves)]
        if function.parent is not None:
            # what only probes call stays theirs, though it is defined inside a function of the verdict
            theirs = set() if function in halves.probe_side else halves.probe_side
            todo += [g for g in halves.scopes.functions if g.parent is function and g not in theirs]
    return reached


def _bindings(halves: Halves, names: LabNames) -> Iterator[Problem]:
    for name, nodes in halves.scopes.cell.bound.items():
        line = getattr(nodes[0], "lineno", 1)
        if name in names.solution:
            yield line, f"defines `{name}`, which a solution cell defines."
        elif name in names.shared and not all(isinstance(node, ast.alias) for node in nodes):
            yield (
                line,
                f"defines `{name}`, which a shared cell defines; tests would then depend on their order.",
            )


def _check_use(use: Use, halves: Halves, names: LabNames) -> Iterator[Problem]:
    if use.node in halves.handed_over and use.binder is None:
        return
    outside = use.binder is None or used_too_early(use, halves.scopes)
    if use.owner in halves.verdict and outside:
        yield from _verdict_use(use, names, both=use.owner in halves.probe_side)
    elif use.owner in halves.probe_side and outside:
        if use.name not in names.shared | names.student | PYTHON_NAMES:
            yield use.line, f"uses `{use.name}` in a probe, and no cell defines it."
    elif use.owner in halves.probe_side and use.binder not in halves.probe_side and _EXPECTED.match(use.name):
        yield use.line, f"takes `{use.name}` into a probe; what is expected stays in the verdict."


def _verdict_use(use: Use, names: LabNames, both: bool) -> Iterator[Problem]:
    if both and use.name in names.student:
        yield use.line, f"uses the student's `{use.name}` in a function that is called outside launch, too."
    elif use.name in names.solution:
        yield (
            use.line,
            f"uses the student's `{use.name}` outside a probe; let a probe call it and return raw data.",
        )
    elif use.name in names.student:
        yield use.line, f"uses `{use.name}`, which only a plain cell defines, outside a probe."
    elif use.name not in names.shared | PYTHON_NAMES:
        yield use.line, f"uses `{use.name}`, which neither this cell nor a shared cell defines."
