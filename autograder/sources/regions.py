"""The marked regions of a lab: `### BEGIN SOLUTION` .. `### END SOLUTION` and the same with `HIDDEN TESTS`.

The markers and the stub are nbgrader's defaults, so its own preprocessors clear the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator

STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
SOLUTION = "SOLUTION"
HIDDEN = "HIDDEN TESTS"


def find_regions(text: str, what: str) -> list[tuple[int, int]]:
    """The regions of `text` as (index of begin line, index of end line); ValueError where they do not pair.

    >>> find_regions("a\\n### BEGIN SOLUTION\\nb\\n### END SOLUTION", "SOLUTION")
    [(1, 3)]
    """
    regions, begin = [], None
    for index, line in enumerate(text.splitlines()):
        if f"BEGIN {what}" in line:
            if begin is not None:
                raise ValueError(f"line {index + 1} begins {what} inside the one of line {begin + 1}")
            begin = index
        elif f"END {what}" in line:
            if begin is None:
                raise ValueError(f"line {index + 1} ends {what} that never began")
            regions.append((begin, index))
            begin = None
    if begin is not None:
        raise ValueError(f"{what} of line {begin + 1} never ends")
    return regions


def region_lines(text: str, what: str) -> Iterator[str]:
    """The lines inside the regions, without the markers."""
    lines = text.splitlines()
    for begin, end in find_regions(text, what):
        yield from lines[begin + 1 : end]


def stubbed(text: str) -> str:
    """A solution cell as students get it: each solution region is the stub, at the region's indentation.

    >>> print(stubbed("def f():\\n    ### BEGIN SOLUTION\\n    return 1\\n    ### END SOLUTION"))
    def f():
        # YOUR CODE HERE
        raise NotImplementedError()
    """
    lines = text.splitlines()
    for begin, end in reversed(find_regions(text, SOLUTION)):
        indent = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
        lines[begin : end + 1] = [indent + line for line in STUB]
    return "\n".join(lines)


def without_hidden(text: str) -> str:
    """A test cell as students get it; hidden lines become empty ones, so that line numbers hold."""
    lines = text.splitlines()
    for begin, end in find_regions(text, HIDDEN):
        lines[begin : end + 1] = [""] * (end + 1 - begin)
    return "\n".join(lines)
