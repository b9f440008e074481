"""Edits of a reference answer: `replace these lines by those`, for answer files that differ from it in a few lines.

    # %% edit="ring_all_gather"
    # replace
        for step in range(world - 1):
    # by
        for step in range(world):

Several pairs may stand in one cell. The lines after `# replace` must stand in the reference exactly once, letter for
letter, so that an edit that no longer fits is refused and never silently does nothing. Left out: regular expressions.
"""

from __future__ import annotations

OLD, NEW = "# replace", "# by"


def edited(text: str, edits: str) -> str:
    """`text` with each pair of `edits` carried out, in order; ValueError says which one does not fit.

    >>> print(edited("def f(x):\\n    y = x\\n    return y", "# replace\\n    y = x\\n# by\\n    y = 2 * x"))
    def f(x):
        y = 2 * x
        return y
    """
    lines = text.splitlines()
    for old, new in _pairs(edits.splitlines()):
        places = [k for k in range(len(lines) - len(old) + 1) if lines[k : k + len(old)] == old]
        if len(places) != 1:
            shown = old[0].strip() + (f" (and {len(old) - 1} more)" if len(old) > 1 else "")
            raise ValueError(f"the lines to replace must stand in the reference once, not {len(places)} times: {shown}")
        lines[places[0] : places[0] + len(old)] = new
    return "\n".join(lines)


def _pairs(lines: list[str]) -> list[tuple[list[str], list[str]]]:
    """The pairs of a cell as (old lines, new lines), without blank lines at their ends."""
    pairs: list[tuple[list[str], list[str]]] = []
    side = 1  # of the pair that is being read
    for line in lines:
        if line.rstrip() == OLD and side == 1:
            pairs.append(([], []))
            side = 0
        elif line.rstrip() == NEW and side == 0:
            side = 1
        elif pairs:
            pairs[-1][side].append(line)
        elif line.strip():
            raise ValueError(f"an edit begins with `{OLD}`, not with {line.strip()!r}")
    if not pairs or side == 0:
        raise ValueError(f"an edit is `{OLD}`, the lines to replace, `{NEW}`, the new lines")
    pairs = [(_trimmed(old), _trimmed(new)) for old, new in pairs]
    if not all(old for old, _ in pairs):
        raise ValueError(f"there are no lines after `{OLD}`")
    return pairs


def _trimmed(lines: list[str]) -> list[str]:
    filled = [k for k, line in enumerate(lines) if line.strip()]
    return [line.rstrip() for line in lines[filled[0] : filled[-1] + 1]] if filled else []
