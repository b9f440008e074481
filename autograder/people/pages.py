"""Makes web pages that need nothing beside themselves, from the templates in this folder."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
_CELL = re.compile(r"In\[(\d+)\]|\bcell (\d+)\b")


@cache
def _environment() -> Environment:
    # autoescape: what students wrote, and their names, are text on the page and nothing else.
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(points=points, python=highlighted, cells=with_cell_links)
    return made


def render(template: str, **values: Any) -> str:
    """A page as HTML text.

    Example:
        render("feedback.html.j2", page=page)
    """
    return _environment().get_template(template).render(code_style=_code_style(), **values)


def points(number: float) -> str:
    """Points without needless zeros.

    >>> points(2.0), points(0.5)
    ('2', '0.5')
    """
    return f"{round(number, 2):g}"


@cache
def _code_style() -> Markup:
    from pygments.formatters import HtmlFormatter

    return Markup(HtmlFormatter(style="friendly").get_style_defs(".code"))


def highlighted(source: str) -> Markup:
    """Python source as coloured HTML lines, escaped; magics and unfinished code do no harm."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return Markup(highlight(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))


def with_cell_links(text: str, shown: set[int] = frozenset()) -> Markup:
    """Text with each `In[14]` and `cell 14` a link to that cell, where the page shows it."""

    def link(found: re.Match[str]) -> str:
        number = int(found.group(1) or found.group(2))
        return f'<a href="#in-{number}">{found.group(0)}</a>' if number in shown else found.group(0)

    return Markup(_CELL.sub(link, escape(str(text))))
