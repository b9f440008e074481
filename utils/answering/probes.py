"""Probes: functions of a test that run beside the student's code, sent here without the student's names.

A probe arrives pickled by value. What it names and does not carry is the student's: it is looked up in the namespace
that the student's cells left. The probe then runs on ranks as in a notebook, and only plain data goes back.

Worked example: the test's `lambda: ring_all_reduce(x)` carries `x` and finds the student's `ring_all_reduce` here.
"""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import cloudpickle.cloudpickle as cp

from ..ranks import plain
from ..ranks.api import launch
from ..ranks.errors import BadLaunch, LaunchError
from ..ranks.run import Run
from ..ranks.ship import names_in
from .protocol import MOST_ANSWER, cut
from .traces import trace_rows

MOST_PRINTED = 600_000  # characters of what one rank printed
OPTIONS = ("ranks", "timeout", "delay", "seed", "trace", "backend", "device")


class _Loader(pickle.Unpickler):
    """Also collects the functions that come by value: those are the ones that may lack names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.made: list[FunctionType] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return self.make if found is cp._make_function else found

    def make(self, *args: Any) -> FunctionType:
        function = cp._make_function(*args)
        self.made.append(function)
        return function


def load(payload: bytes, namespace: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call `(function, args, kwargs)` that `payload` holds, its missing names filled from `namespace`."""
    loader = _Loader(payload)
    fn, args, kwargs = loader.load()
    fill(loader.made, namespace)
    return fn, tuple(args), dict(kwargs)


def fill(functions: Iterable[FunctionType], namespace: Mapping[str, Any]) -> None:
    """Give each function the globals that its code names, that it does not carry, and that `namespace` has.

    A name that nobody has stays missing, and using it is the NameError that a student would see.
    """
    for function in functions:
        missing = names_in(function.__code__) - function.__globals__.keys() - vars(builtins).keys()
        function.__globals__.update({name: namespace[name] for name in missing if name in namespace})


def answer(payload: bytes, options: Mapping[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Run a probe; returns the fields of ANSWER but for `request`: those of a run, or of an error."""
    try:
        fn, args, kwargs = load(payload, namespace)
        chosen = {name: value for name, value in options.items() if name in OPTIONS}
        run = launch(fn, *args, kwargs=kwargs, show=False, **chosen)
        return _reply(run)
    except LaunchError as error:
        return failed(error)


def _reply(run: Run) -> dict[str, Any]:
    fields = {
        "values": list(run.values), "stdout": [cut(t, MOST_PRINTED) for t in run.stdout],
        "stderr": [cut(t, MOST_PRINTED) for t in run.stderr], "peak_bytes": list(run.peak_bytes),
        "seconds": float(run.seconds), "trace": trace_rows(run.trace), "backend": run.backend, "device": run.device,
        "notes": [cut(n) for n in run.notes],
    }  # fmt: skip
    size = len(plain.encode(fields))
    if size > MOST_ANSWER:
        raise BadLaunch(
            f"what the ranks returned is {size / 2**20:.0f} MiB together; one launch may return at most "
            f"{MOST_ANSWER >> 20} MiB."
        )
    return fields


def failed(error: BaseException) -> dict[str, Any]:
    """The fields of an ANSWER that tells of an error."""
    rank, shown = getattr(error, "rank", None), getattr(error, "traceback", None)
    return {
        "error": type(error).__name__, "text": cut(str(error)), "rank": rank if type(rank) is int else None,
        "traceback": cut(shown) if isinstance(shown, str) else None,
    }  # fmt: skip
