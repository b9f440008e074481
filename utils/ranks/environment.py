"""Environment variables that hold for a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def environment(**wanted: str) -> Iterator[None]:
    """While this holds, these variables have these values; then each is what it was, or gone.

    Example:
        with environment(UTILS_TIMEOUT="20"):
            launch(step)                        # ended after 20 s
    """
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
