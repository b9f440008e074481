"""Shipping functions: the submodules that travel with one are those that cloudpickle itself would send."""

from __future__ import annotations

import concurrent.futures
import os.path
import subprocess
import sys
import xml
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from utils.ranks import ship

CODE = """
import sys
import types
import cloudpickle.cloudpickle as cp
theirs = cp._find_imported_submodules
from tests_of_ship import CASES
from utils.ranks import ship
for fn, packages in CASES:
    ours = ship._submodules(fn.__code__, packages)
    assert {m.__name__ for m in ours} == {m.__name__ for m in theirs(fn.__code__, packages)}, fn
    assert all(isinstance(m, types.ModuleType) for m in ours)
print("the same", len(CASES))
"""


def nothing() -> int:
    return 1


def optimizer() -> Any:
    return torch.optim.lr_scheduler.StepLR


def deep() -> Any:
    return xml.etree.ElementTree.fromstring("<a/>").tag, concurrent.futures.ThreadPoolExecutor


def several() -> Any:
    return torch.nn.functional.relu(torch.ones(1)), dist.get_rank, torch.distributed.tensor, os.path.join


CASES: list[tuple[Callable[..., Any], list[Any]]] = [
    (nothing, [torch]), (optimizer, [torch, 3, "x"]), (deep, [xml, concurrent]), (several, [torch, dist, os]),
]  # fmt: skip


def test_submodules_are_those_that_cloudpickle_finds() -> None:
    load = f"import importlib.util as u; s = u.spec_from_file_location('tests_of_ship', {__file__!r})\n"
    load += "import sys; m = u.module_from_spec(s); sys.modules['tests_of_ship'] = m\n"
    # cloudpickle's own is still there before anything of ours is imported
    code = "import cloudpickle.cloudpickle as cp; kept = cp._find_imported_submodules\n" + load
    code += "s.loader.exec_module(m); cp._find_imported_submodules = kept\n" + CODE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == f"the same {len(CASES)}", done.stderr[-2000:]


@pytest.mark.parametrize(("fn", "wanted"), [(deep, "xml.etree.ElementTree"), (optimizer, "torch.optim.lr_scheduler")])
def test_a_submodule_that_is_used_travels(fn: Callable[..., Any], wanted: str) -> None:
    packages = [value for value in fn.__globals__.values() if type(value) is type(sys)]
    assert wanted in {module.__name__ for module in ship._submodules(fn.__code__, packages)}
    assert wanted.encode() in ship.pack(_by_value(fn), (), {})[0]


def _by_value(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a cell would define it."""
    fn.__module__ = "__main__"
    return fn
