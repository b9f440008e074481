"""The rules of a lab, held when it is built and when it is released. Each refusal is one sentence.

A rule guards a promise: a verdict that runs where the student's code never ran, a release without answers,
marks that add up to 20, cells that nbgrader finds again by their names.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import nbformat

from autograder.sources.cells import Cell, Source, SourceError
from autograder.sources.comparing import comparing_functions
from autograder.sources.probes import (
    PYTHON_NAMES,
    LabNames,
    Problem,
    check_test,
    hidden_uses,
    launcher_names,
    take_apart,
    touched,
)
from autograder.sources.regions import HIDDEN, SOLUTION, find_regions, region_lines, stubbed, without_hidden
from autograder.sources.scopes import bound_names, read_scopes

LAB_POINTS = 20
_MAGIC = re.compile(r"^\s*[%!]")


def check_source(source: Source) -> None:
    """Raise SourceError with one line for each rule that a text source breaks."""
    problems = list(broken_rules(source))
    if problems:
        raise SourceError("\n".join(problems))


def broken_rules(source: Source) -> Iterator[str]:
    """One sentence for each rule that a source breaks, naming the file, the line, the cell and the name."""
    for cell, problem in _all_problems(source):
        line, why = problem
        yield f"{source.path.name}, line {cell.line + line - 1}: {cell.label} {why}"
    points = sum(cell.points for cell in source.cells)
    if source.is_lab and points != LAB_POINTS:
        yield f"{source.path.name}: its tests have {points} points together, and a lab has {LAB_POINTS}."


def _all_problems(source: Source) -> Iterator[tuple[Cell, Problem]]:
    whole, code = [], source.of_kind("shared", "solution", "test", "plain", "edit")
    for cell in code:
        problems = list(_shape(cell))
        whole += [cell] if not problems else []
        yield from ((cell, problem) for problem in problems)
    counts = Counter(cell.name for cell in source.cells if cell.name)
    for cell in source.cells:
        if cell.name and counts[cell.name] > 1:
            counts[cell.name] = 1  # said once
            yield cell, (1, "has a name that another cell has too.")
    if len(whole) == len(code):
        yield from _name_problems(source)


def _shape(cell: Cell) -> Iterator[Problem]:
    """Whether a cell parses, as staff and as students see it, and has the regions that its kind needs."""
    if cell.kind == "edit":
        yield 1, "belongs into a file of answers; a lab has solution cells."
        return
    try:
        solutions, hidden = find_regions(cell.text, SOLUTION), find_regions(cell.text, HIDDEN)
    except ValueError as error:
        yield 1, f"has regions that do not pair: in the cell, {error}."
        return
    if cell.kind == "solution" and not solutions:
        yield 1, "has no ### BEGIN SOLUTION .. ### END SOLUTION, so its release would hold the answer."
    if cell.kind != "solution" and solutions:
        yield 1, "has a SOLUTION region, which only a solution cell may have."
    if cell.kind != "test" and hidden:
        yield 1, "has a HIDDEN TESTS region, which only a test cell may have."
    for text, whose in ((cell.text, ""), (student_text(cell), " in the release")):
        try:
            parse_cell(cell.kind, text)
        except SyntaxError as error:
            yield error.lineno or 1, f"is not Python{whose}: {error.msg}."
            return


def student_text(cell: Cell) -> str:
    """A cell's text as students get it."""
    if cell.kind == "solution":
        return stubbed(cell.text)
    return without_hidden(cell.text) if cell.kind == "test" else cell.text


@cache
def parse_cell(kind: str, text: str) -> ast.Module:
    """The syntax tree of a cell; in plain cells, lines of IPython's magics count as empty."""
    if kind == "plain":
        text = "\n".join(
            re.sub(r"\S.*", "pass", line) if _MAGIC.match(line) else line for line in text.splitlines()
        )
    return ast.parse(text)


def lab_names(source: Source) -> LabNames:
    """What the cells of a source define, by kind."""

    def bound(kind: str) -> frozenset[str]:
        return frozenset(
            name for cell in source.of_kind(kind) for name in bound_names(parse_cell(kind, cell.text))
        )

    launchers, comparers = frozenset({"launch"}), frozenset()
    for cell in source.of_kind("shared"):
        tree = parse_cell("shared", cell.text)
        launchers = launcher_names(tree, launchers)
        comparers |= comparing_functions(tree, read_scopes(tree))
    return LabNames(bound("shared"), bound("solution"), bound("plain"), launchers, comparers)


def touched_names(source: Source) -> dict[str, set[str]]:
    """For each test cell the student's names that its probes use, and those that these use in turn.

    With them stand the ids of their cells, which differ where a cell defines a class.

    >>> touched_names(lab01)["ring_uneven"]   # doctest: +SKIP
    {'ring_all_reduce', 'ring_reduce_scatter', 'ring_all_gather'}
    """
    names = lab_names(source)
    needs, cells = {}, {}
    for cell in source.of_kind("solution"):
        tree = parse_cell("solution", cell.text)
        used = {use.name for use in read_scopes(tree).uses}
        needs |= {name: needs.get(name, set()) | (used & names.solution) for name in bound_names(tree)}
        cells |= dict.fromkeys(bound_names(tree), cell.name)
    result = {}
    for cell in source.of_kind("test"):
        found, todo = set(), list(touched(take_apart(parse_cell("test", cell.text), names), names))
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += needs.get(name, ())
        result[cell.name] = found | {cells[name] for name in found if name in cells}
    return result


def _name_problems(source: Source) -> Iterator[tuple[Cell, Problem]]:
    names = lab_names(source)
    for cell in source.cells:
        if cell.kind == "markdown":
            continue
        tree = parse_cell(cell.kind, cell.text)
        if cell.kind == "shared":
            problems: Iterable[Problem] = _shared_problems(tree, names)
        elif cell.kind == "solution":
            problems = _solution_problems(tree, names)
        elif cell.kind == "plain":
            problems = _plain_problems(tree, names)
        else:
            visible = parse_cell("test", student_text(cell))
            # a name bound only in the hidden part is missing from the release
            problems = {
                **dict.fromkeys(check_test(tree, names)),
                **dict.fromkeys(_visible_problems(visible, names)),
            }
        yield from ((cell, problem) for problem in problems)


def _visible_problems(tree: ast.Module, names: LabNames) -> list[Problem]:
    return [
        problem
        for problem in check_test(tree, names)
        if "neither this cell" in problem[1] or "no cell" in problem[1]
    ]


def _shared_problems(tree: ast.Module, names: LabNames) -> Iterator[Problem]:
    yield from hidden_uses(tree)
    for use in read_scopes(tree).uses:
        if use.binder is None and use.name in names.student:
            yield (
                use.line,
                f"uses the student's `{use.name}`; shared cells also run where no student's code is.",
            )
        elif use.binder is None and use.name not in names.shared | PYTHON_NAMES:
            yield use.line, f"uses `{use.name}`, which no shared cell defines."
    for name in bound_names(tree) & names.solution:
        yield 1, f"defines `{name}`, which a solution cell defines too."


def _solution_problems(tree: ast.Module, names: LabNames) -> Iterator[Problem]:
    for use in read_scopes(tree).uses:
        if use.binder is None and use.name not in names.solution | names.shared | PYTHON_NAMES:
            known = "only a plain cell defines" if use.name in names.plain else "no cell defines"
            yield use.line, f"uses `{use.name}`, which {known}."


def _plain_problems(tree: ast.Module, names: LabNames) -> Iterator[Problem]:
    for name, nodes in read_scopes(tree).cell.bound.items():
        same_import = all(isinstance(node, ast.alias) for node in nodes)
        if name in names.shared and not same_import:
            yield nodes[0].lineno, f"defines `{name}`, which a shared cell defines: tests would see either."
        if name in names.solution:
            yield (
                nodes[0].lineno,
                f"defines `{name}`, which a solution cell defines: it would cover the student's.",
            )


def check_release(release: nbformat.NotebookNode, source: Source) -> None:
    """Raise SourceError where a release still holds a solution, a hidden test, or a marker of either."""
    problems = []
    text = "\n".join(cell.source for cell in release.cells)
    for what in (SOLUTION, HIDDEN):
        if f"BEGIN {what}" in text or f"END {what}" in text:
            problems.append(f"The release of {source.name} still has a marker of {what}.")
    allowed = {line.strip() for cell in source.cells for line in student_text(cell).splitlines()}
    for cell in source.of_kind("solution", "test"):
        what = SOLUTION if cell.kind == "solution" else HIDDEN
        for line in region_lines(cell.text, what):
            secret = line.strip()
            if (
                len(secret) > 3
                and secret not in allowed
                and secret in {row.strip() for row in text.splitlines()}
            ):
                problems.append(f'The release of {source.name} still has a line of {cell.label}: "{secret}".')
                break
    if problems:
        raise SourceError("\n".join(problems))
