"""Keeps the hidden part of a test cell out of what a student reads."""

from __future__ import annotations

from autograder.sources.regions import HIDDEN, region_lines, without_hidden

SHORT = 8


def scrub(text: str, test_source: str) -> str:
    """`text` without the lines that quote the hidden part of a test, as tracebacks through a probe do.

    Lines of fewer than SHORT characters give nothing away and stay, and so do those of the visible part.

    Example:
        >>> scrub("> got = f(7)\\nKeyError: 7", "### BEGIN HIDDEN TESTS\\ngot = f(7)\\n### END HIDDEN TESTS")
        'KeyError: 7'
    """
    visible = {line.strip() for line in without_hidden(test_source).splitlines()}
    hidden = {line.strip() for line in region_lines(test_source, HIDDEN)}
    secret = {line for line in hidden - visible if len(line) >= SHORT}
    return "\n".join(line for line in text.splitlines() if not any(quote in line for quote in secret))
