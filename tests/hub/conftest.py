"""One class on one hub, for all tests here that need a hub: starting one takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.a_class import RunningClass


@pytest.fixture(scope="session")
def klass() -> Iterator[RunningClass]:
    with RunningClass() as running:
        yield running
