"""What every test gets: no plot windows, a course-data folder of its own, a skip where a GPU is missing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

os.environ["MPLBACKEND"] = "Agg"


def pytest_configure(config: pytest.Config) -> None:
    """A temporary folder for each process of tests: what lies in it is its own, never that of a worker beside it."""
    folder = tempfile.mkdtemp(prefix="tests-")
    os.chmod(folder, 0o1777)  # as /tmp itself: some tests run as another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session", autouse=True)
def course_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fresh COURSE_DATA, so that no test touches the marks of a class."""
    before = os.environ.get("COURSE_DATA")
    os.environ["COURSE_DATA"] = str(tmp_path_factory.mktemp("course_data"))
    yield os.environ["COURSE_DATA"]
    if before is None:
        del os.environ["COURSE_DATA"]
    else:
        os.environ["COURSE_DATA"] = before


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, for its fixtures; answers of labs share none and are spread."""
    for item in items:
        if item.path.parent.name != "answers":
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    _skip_without_gpu(items)


def _skip_without_gpu(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; torch is only asked when such tests were chosen."""
    needy = [item for item in items if item.get_closest_marker("gpu")]
    if not needy:
        return
    import torch

    # counts devices without initialising CUDA, which forked ranks could not use afterwards
    if torch.cuda.device_count() == 0:
        for item in needy:
            item.add_marker(pytest.mark.skip(reason="needs a GPU, and torch sees none"))
