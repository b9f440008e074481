"""Headers of answer files: `# key: value` lines above the first cell; an indented line goes on with the one before."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autograder.sources.cells import Source, SourceError


def read_header(source: Source, keys: Sequence[str]) -> dict[str, list[str]]:
    """The values of each key, in order, empty lists for those that are not there.

    Raises:
        SourceError: a line belongs to none of `keys`.

    Example: of `# kind: wrong` and `# loses: a, b`, the keys kind and loses have `["wrong"]` and `["a, b"]`.
    """
    fields: dict[str, list[str]] = {key: [] for key in keys}
    last = ""
    for line in source.preamble:
        key, colon, value = line.partition(":")
        if colon and key in fields:
            last = key
            fields[key].append(value.strip())
        elif last and line.startswith(" "):
            fields[last].append(line.strip())
        else:
            raise SourceError(
                f"{source.path.name}: cannot read the header line {line!r}; it is none of {', '.join(keys)}."
            )
    return {key: [value for value in values if value] for key, values in fields.items()}


def names_in(values: Sequence[str]) -> tuple[str, ...]:
    """Names that stand in a header's values, with commas or spaces between."""
    return tuple(" ".join(values).replace(",", " ").split())


def says_in(values: Sequence[str], source: Source) -> dict[str, str]:
    """What `says` lines tell: part of a message, by test. Raises SourceError."""
    found: dict[str, str] = {}
    for line in values:
        try:
            (pair,) = json.loads("{" + line + "}").items()
        except (ValueError, AttributeError):
            raise SourceError(
                f'{source.path.name}: write says as "test": "part of its message", not {line}.'
            ) from None
        found |= [pair]
    return found
