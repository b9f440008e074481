"""A probe compares nothing: it runs beside the student's code, which could patch whatever would compare.

Allowed is what steers a probe: comparisons of ranks, sizes, loop indices, parameters and constants with each
other, and `is None`. Everything that came out of the student's code may only be returned.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autograder.sources.scopes import Function, Scopes

COMPARING_NAMES = {
    *("equal", "not_equal", "allclose", "isclose", "is_close", "array_equal", "array_equiv", "isin"),
    *("eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *("assert_close", "assert_allclose", "assert_equal", "assert_array_equal", "assert_almost_equal"),
    *("testing", "isinstance", "issubclass"),
}
COMPARING_ATTRIBUTES = COMPARING_NAMES | {"all", "any", "check"}
# Calls that tell a rank, a size or a count: nothing that the student's code holds in its hands.
_INDEX_CALLS = {"get_rank", "get_world_size", "len", "numel", "size", "dim"}

Problem = tuple[int, str]
_ADVICE = "return the values and compare them in the verdict."


def compared(
    scopes: Scopes,
    probe_side: Collection[Function],
    probes: Collection[Function],
    student: Collection[str],
    comparers: Collection[str] = (),
) -> list[Problem]:
    """What the probe side of a cell compares, as (line in the cell, what is wrong).

    `probes` get plain arguments from launch; other functions of the probe side get what probes give them.
    """
    judge = _Judge(scopes, set(probe_side), set(probes), set(student))
    judge.spread()
    aliases = _aliases(scopes)
    found = []
    for node, owner in scopes.owner_of.items():
        if owner in judge.side:
            found += judge.problems(node, owner, aliases, comparers)
    return found


def comparing_functions(tree: ast.Module, scopes: Scopes) -> frozenset[str]:
    """Functions of a shared cell that compare what they are given: a probe may not call them on a result."""
    names = set()
    for function in scopes.functions:
        if isinstance(function.node, ast.FunctionDef):
            judge = _Judge(scopes, {function}, set(), set())
            judge.tainted |= {(function, param) for param in function.params}
            judge.spread()
            inside = [node for node, owner in scopes.owner_of.items() if owner is function]
            if any(list(judge.problems(node, function, _aliases(scopes), ())) for node in inside):
                names.add(function.node.name)
    return frozenset(names)


def _aliases(scopes: Scopes) -> dict[str, str]:
    """Names that imports of this cell give to comparing functions, e.g. {"same": "equal"}."""
    aliases = {}
    for node in scopes.owner_of:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in COMPARING_ATTRIBUTES:
                    aliases[alias.asname or alias.name] = alias.name
    return aliases


class _Judge:
    """Tells which names of the probe side hold results (`tainted`) and which only steer."""

    def __init__(self, scopes: Scopes, side: set[Function], probes: set[Function], student: set[str]) -> None:
        self.scopes, self.side, self.probes, self.student = scopes, side, probes, student
        self.tainted: set[tuple[Function, str]] = set()
        self.given: set[tuple[Function, str]] = set()  # parameters that were handed to some other call
        self.uses = {use.node: use for use in scopes.uses}

    def spread(self) -> None:
        """Follow results through assignments, loops and calls until nothing new is found."""
        before = -1
        while before != len(self.tainted) + len(self.given):
            before = len(self.tainted) + len(self.given)
            for node, owner in self.scopes.owner_of.items():
                if owner in self.side:
                    self._follow(node, owner)

    def _follow(self, node: ast.AST, owner: Function) -> None:
        if isinstance(node, ast.Assign) and not self.steers(node.value):
            self._taint(node.targets, owner)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            if not self.steers(node.value):
                self._taint([node.target], owner)
        elif isinstance(node, ast.For | ast.comprehension) and not self.steers(node.iter):
            self._taint([node.target], owner)
        elif isinstance(node, ast.With):
            self._taint([item.optional_vars for item in node.items if item.optional_vars], owner)
        elif isinstance(node, ast.Call):
            self._follow_call(node)

    def _follow_call(self, call: ast.Call) -> None:
        definitions = []
        if isinstance(call.func, ast.Name) and call.func in self.uses:
            definitions = self.scopes.definitions(self.uses[call.func])
        for function in definitions:
            if function not in self.probes:
                for param, value in _arguments(call, function):
                    if not self.steers(value):
                        self.tainted.add((function, param))
        if definitions or not self._plain_call(call):
            for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
                if isinstance(value, ast.Name) and value in self.uses and self.uses[value].binder is not None:
                    self.given.add((self.uses[value].binder, value.id))

    def _plain_call(self, call: ast.Call) -> bool:
        """Whether a call runs neither the student's code nor code of this cell, which may run it in turn."""
        if isinstance(call.func, ast.Name):
            use = self.uses.get(call.func)
            return use is not None and use.binder is None and use.name not in self.student
        return isinstance(call.func, ast.Attribute) and self.steers(call.func.value)

    def _taint(self, targets: list[ast.expr], owner: Function) -> None:
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load):
                    self.tainted.add((self._binder(name.id, owner), name.id))

    def _binder(self, name: str, owner: Function) -> Function:
        function: Function | None = owner
        while function is not None:
            if name in function.bound:
                return function
            function = function.parent
        return owner

    def steers(self, node: ast.AST) -> bool:
        """Whether an expression is made of ranks, sizes, indices, parameters and constants only."""
        if isinstance(node, ast.Name):
            use = self.uses.get(node)
            if use is None or use.binder is None:
                return node.id not in self.student
            return (use.binder, node.id) not in self.tainted
        if isinstance(node, ast.Call):
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
            return self._plain_call(node) and all(self.steers(part) for part in parts)
        if isinstance(node, ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        return all(
            self.steers(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)
        ) and all(
            self.steers(part.iter) and all(self.steers(test) for test in part.ifs)
            for part in getattr(node, "generators", [])
        )

    def problems(
        self, node: ast.AST, owner: Function, aliases: dict[str, str], comparers: Collection[str]
    ) -> Iterator[Problem]:
        if isinstance(node, ast.Compare):
            if not self._may_compare(node):
                yield node.lineno, f"compares in a probe (`{ast.unparse(node)}`); {_ADVICE}"
        elif isinstance(node, ast.Assert):
            yield node.lineno, f"asserts in a probe; {_ADVICE}"
        elif isinstance(node, ast.Match) and not self.steers(node.subject):
            yield node.lineno, f"matches in a probe; {_ADVICE}"
        elif isinstance(node, ast.Attribute) and node.attr in COMPARING_ATTRIBUTES:
            yield node.lineno, f"uses `{ast.unparse(node)}` in a probe; {_ADVICE}"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            use = self.uses.get(node)
            name = aliases.get(node.id, node.id)
            outside = use is not None and (use.binder is None or use.binder.parent is None)
            if outside and (name in COMPARING_NAMES or name == "check"):
                yield node.lineno, f"uses `{node.id}` in a probe; {_ADVICE}"
        elif isinstance(node, ast.Call):
            yield from self._call_problems(node, comparers)

    def _call_problems(self, call: ast.Call, comparers: Collection[str]) -> Iterator[Problem]:
        name = _called_name(call)
        if name == "getattr" and len(call.args) > 1:
            attribute = call.args[1]
            if not isinstance(attribute, ast.Constant) or attribute.value in COMPARING_ATTRIBUTES:
                yield call.lineno, f"uses `{ast.unparse(call)}` in a probe, which may compare; {_ADVICE}"
        if name in comparers and not all(self.steers(value) for value in call.args):
            yield call.lineno, f"gives a result to `{name}`, which compares, in a probe; {_ADVICE}"

    def _may_compare(self, node: ast.Compare) -> bool:
        operands = [node.left, *node.comparators]
        nothing = any(isinstance(operand, ast.Constant) and operand.value is None for operand in operands)
        if nothing and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return True
        if not all(self.steers(operand) for operand in operands):
            return False
        # An argument that some code was given may hold its result now: `f(x); x == expected`.
        given = [operand for operand in operands if self._was_given(operand)]
        return all(isinstance(operand, ast.Name) for operand in given) and (
            not given or any(self._is_index(operand) for operand in operands)
        )

    def _was_given(self, operand: ast.expr) -> bool:
        names = [name for name in ast.walk(operand) if isinstance(name, ast.Name) and name in self.uses]
        sizes = {part for call in ast.walk(operand) if isinstance(call, ast.Call) for part in ast.walk(call)}
        return any((self.uses[name].binder, name.id) in self.given for name in names if name not in sizes)

    def _is_index(self, operand: ast.expr) -> bool:
        """Whether an operand is a rank, a size, or a loop index, and not a constant or a bare parameter."""
        if isinstance(operand, ast.Call):
            return _called_name(operand) in _INDEX_CALLS
        if isinstance(operand, ast.BinOp):
            return self._is_index(operand.left) or self._is_index(operand.right)
        if isinstance(operand, ast.Name) and operand in self.uses and self.uses[operand].binder is not None:
            return operand.id not in self.uses[operand].binder.params
        return False


def _called_name(call: ast.Call) -> str:
    func = call.func
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _arguments(call: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call and the parameters that take them; a starred one may reach every parameter."""
    for index, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            yield from ((param, value.value) for param in function.params)
        elif index < len(function.params):
            yield function.params[index], value
    for keyword in call.keywords:
        for param in function.params if keyword.arg is None else [keyword.arg]:
            yield param, keyword.value
