"""Small pieces of sentences: counted nouns, lists of ranks, ranges of elements, numbers without noise."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def number_of(count: int, noun: str) -> str:
    """`number_of(1, "element")` is "1 element", `number_of(3, "element")` is "3 elements"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(items: Iterable[object]) -> str:
    """`listed([0, 2, 3])` is "0, 2 and 3"."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def ranks_text(ranks: list[int]) -> str:
    """`ranks_text([1])` is "rank 1", `ranks_text([1, 2])` is "ranks 1 and 2"."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {listed(ranks)}"


def elements(mask: torch.Tensor) -> str:
    """Where a flat mask is true: "all 4 elements", "element 3", "elements 2..5 of 9", "3 of 9 elements"."""
    places = mask.nonzero().reshape(-1).tolist()
    total = mask.numel()
    if len(places) == 1:
        return f"element {places[0]}" if total == 1 else f"element {places[0]} of {total}"
    if len(places) == total:
        return f"all {total} elements"
    if places[-1] - places[0] + 1 == len(places):
        return f"elements {places[0]}..{places[-1]} of {total}"
    return f"{len(places)} of {total} elements"


def singular(text: str) -> str:
    """A phrase that begins with a verb, for one thing: "still hold the input" is "still holds the input"."""
    for many, one in (
        ("are", "is"),
        ("were", "was"),
        ("have", "has"),
        ("hold", "holds"),
        ("lack", "lacks"),
        ("contain", "contains"),
    ):
        for lead in ("", "still "):
            if text.startswith(f"{lead}{many} "):
                return f"{lead}{one} {text[len(lead) + len(many) + 1 :]}".replace(": they hold", ": it holds")
    return text


def element(tensor: torch.Tensor, index: int) -> str:
    """One element as a short number."""
    return short(tensor.detach().cpu().reshape(-1)[index].item())


def short(value: object) -> str:
    """A number without noise: 3.0 is "3", 0.1 + 0.2 is "0.3", whole numbers in full."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
