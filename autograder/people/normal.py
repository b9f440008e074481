"""The form of a piece of Python that stays when names, comments, types and layout are changed."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize

NAME = "v"
TEXT = "'s'"
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def tokens(source: str) -> list[str]:
    """The tokens of a cell in normal form; names that the cell binds are all `v`, texts are all `'s'`.

    Top-level definitions are put in an order of their own, so moving one changes nothing. Code that does not parse
    keeps its order and its names.

    Example:
        >>> tokens("def f(a: int):  # add\\n    return a+1") == tokens("def g( b ):\\n  'Adds.'\\n  return b + 1")
        True
    """
    source = re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return _split(source)
    tree = _Plain(_bound(tree)).visit(tree)
    pieces = [(isinstance(node, (ast.FunctionDef, ast.ClassDef)), _split(ast.unparse(node))) for node in tree.body]
    movable = iter(sorted(piece for defined, piece in pieces if defined))
    return [token for defined, piece in pieces for token in (next(movable) if defined else piece)]


def _split(source: str) -> list[str]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _LAYOUT:
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass  # unfinished code: what came before its end still counts
    return found


def _bound(tree: ast.AST) -> set[str]:
    """Every name that the code gives a meaning to, so that its author chose it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


class _Plain(ast.NodeTransformer):
    """Replaces chosen names and texts; leaves out types and docstrings."""

    def __init__(self, bound: set[str]) -> None:
        self.bound = bound

    def _name(self, name: str) -> str:
        return NAME if name in self.bound and not keyword.iskeyword(name) else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = NAME, None
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = node.arg and self._name(node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = NAME, None
        node.body = _without_texts(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = NAME
        node.body = _without_texts(node.body)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("s")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("s") if isinstance(node.value, str) else node


def _without_texts(body: list[ast.stmt]) -> list[ast.stmt]:
    """A body without docstrings and other texts that do nothing; never empty."""
    kept = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return kept or [ast.Pass()]
