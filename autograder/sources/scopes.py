"""Who binds and who uses a name in a cell: Python's scoping, with lines.

A cell is parsed into `Function` nodes (one for the cell itself, one for each def, lambda and class in it) and
`Use`s (every load of a name, with the function that does it and the function that binds it). Comprehensions
have scopes of their own; defaults, decorators, bases and annotations are used by the function around, as they
are when Python runs.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Function:
    """A def, a lambda, a class or (with `node` the module) the cell itself."""

    node: ast.AST
    parent: Function | None
    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def params(self) -> list[str]:
        """Names of the parameters, in order; none for a class or the cell."""
        args = getattr(self.node, "args", None)
        return [arg.arg for arg in _all_args(args)] if args else []

    def inside(self, other: Function) -> bool:
        """Whether this is `other` or is defined somewhere within it."""
        function: Function | None = self
        while function is not None and function is not other:
            function = function.parent
        return function is other


@dataclass(eq=False)
class Use:
    """A load of `name` at `node` by code of `owner`; `binder` is where it is bound, None outside the cell."""

    name: str
    node: ast.AST
    owner: Function
    binder: Function | None

    @property
    def line(self) -> int:
        return self.node.lineno


@dataclass
class Scopes:
    """All functions and uses of one cell; `cell` is the function that stands for the cell's top level."""

    cell: Function
    functions: list[Function]
    uses: list[Use]
    owner_of: dict[ast.AST, Function]

    def function_of(self, node: ast.AST) -> Function | None:
        return next((function for function in self.functions if function.node is node), None)

    def definitions(self, use: Use) -> list[Function]:
        """The functions that a use may mean: what its binder binds to it by def, class or `= lambda`."""
        if use.binder is None:
            return []
        found = [self.function_of(node) for node in use.binder.bound.get(use.name, [])]
        return [function for function in found if function is not None]


def bound_names(tree: ast.Module) -> set[str]:
    """The names that running this code binds at top level, by assignment, import, def, class, for, with."""
    scopes = read_scopes(tree)
    everywhere = {name for function in scopes.functions for name in function.globals}
    return set(scopes.cell.bound) | everywhere


def read_scopes(tree: ast.Module) -> Scopes:
    """The functions and the uses of names of a parsed cell."""
    walker = _Walker(tree)
    walker.body(tree.body)
    for use in walker.scopes.uses:
        use.binder = _resolve(use)
    return walker.scopes


def used_too_early(use: Use, scopes: Scopes) -> bool:
    """Whether a load at the cell's top level stands before the cell itself has bound the name."""
    if use.binder is not scopes.cell or use.owner is not scopes.cell:
        return False
    here = (use.node.lineno, use.node.col_offset)
    bindings = scopes.cell.bound.get(use.name)  # none where a comprehension binds it
    return bool(bindings) and all(_bound_at(node, scopes) > here for node in bindings)


def _bound_at(node: ast.AST, scopes: Scopes) -> tuple[int, int]:
    """Where a binding takes effect: after its statement for an assignment, else where it stands."""
    for statement in ast.walk(scopes.cell.node):
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and any(
            part is node for target in targets if target is not None for part in ast.walk(target)
        ):
            return statement.end_lineno, statement.end_col_offset
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _resolve(use: Use) -> Function | None:
    if use.binder is not None:  # a comprehension's own variable
        return use.binder
    if use.name in use.owner.globals:
        return _top(use.owner) if use.name in _top(use.owner).bound else None
    function: Function | None = use.owner
    while function is not None:
        # the names of a class body are seen by that body alone, not by its methods
        if use.name in function.bound and (function is use.owner or not function.is_class):
            return function
        function = function.parent
    return None


def _top(function: Function) -> Function:
    while function.parent is not None:
        function = function.parent
    return function


def _all_args(args: ast.arguments) -> list[ast.arg]:
    named = args.posonlyargs + args.args + args.kwonlyargs
    return named + [arg for arg in (args.vararg, args.kwarg) if arg]


class _Walker(ast.NodeVisitor):
    """Fills a Scopes; `hidden` holds the variables of the comprehensions around, innermost last."""

    def __init__(self, tree: ast.Module) -> None:
        cell = Function(tree, None)
        self.scopes = Scopes(cell, [cell], [], {})
        self.now = cell
        self.hidden: list[set[str]] = []

    def visit(self, node: ast.AST) -> None:
        self.scopes.owner_of[node] = self.now
        super().visit(node)

    def body(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def bind(self, name: str, node: ast.AST) -> None:
        target = _top(self.now) if name in self.now.globals else self.now
        target.bound.setdefault(name, []).append(node)

    def enter(self, node: ast.AST, statements: list[ast.AST]) -> None:
        outer, hidden = self.now, self.hidden
        self.now = Function(node, outer)
        self.scopes.functions.append(self.now)
        # a generator's variables are seen by a lambda inside it, as an outer function's would be
        self.hidden = hidden if isinstance(node, ast.Lambda) else []
        for statement in ast.walk(node):
            if isinstance(statement, ast.Global) and not isinstance(node, ast.Lambda):
                self.now.globals |= set(statement.names)
        for param in self.now.params:
            self.bind(param, node.args)
        for statement in statements:
            self.visit(statement)
        self.now, self.hidden = outer, hidden

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name, node)
        self._around(node.args, node.decorator_list, node.returns)
        self.enter(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._around(node.args, [], None)
        self.enter(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, node)
        for outside in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(outside)
        self.enter(node, node.body)

    def _around(self, args: ast.arguments, decorators: list[ast.expr], returns: ast.expr | None) -> None:
        """What a def evaluates when it is reached, in the scope around it."""
        annotations = [arg.annotation for arg in _all_args(args)] + [returns]
        for outside in [*decorators, *args.defaults, *args.kw_defaults, *annotations]:
            if outside is not None:
                self.visit(outside)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            # `probe = lambda: ...` defines a function as much as def does
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                self.scopes.owner_of[target] = self.now
                self.bind(target.id, node.value)
            else:
                self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._use(node.target)
        self.visit(node.value)
        self.visit(node.target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node)
        elif not any(node.id in names for names in self.hidden):
            self.bind(node.id, node)

    def _use(self, node: ast.Name) -> None:
        own = any(node.id in names for names in self.hidden)
        self.scopes.uses.append(Use(node.id, node, self.now, self.now if own else None))

    def visit_alias(self, node: ast.alias) -> None:
        self.bind((node.asname or node.name).split(".")[0], node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest, node)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, _COMPREHENSIONS):
            self._comprehension(node)
        else:
            super().generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)  # evaluated in the scope around
        own = {
            name.id
            for part in node.generators
            for name in ast.walk(part.target)
            if isinstance(name, ast.Name)
        }
        self.hidden = [*self.hidden, own]
        for index, part in enumerate(node.generators):
            self.scopes.owner_of[part] = self.now
            if index:
                self.visit(part.iter)
            for condition in part.ifs:
                self.visit(condition)
        for result in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(result)
        self.hidden = self.hidden[:-1]
