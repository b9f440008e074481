"""The verdict half of a submission: the lab's shared and test cells, in a process that never runs student code.

A test's `launch(probe, ...)` is sent over a link to the process that holds the student's definitions, and plain data
comes back; everything else of the test, its oracles too, runs here. What comes back is believed only in its form: a
run with the wrong number of ranks, or a trace that no journal could hold, is an error of the answer.
"""

from __future__ import annotations

import ast
import io
import linecache
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Protocol

from autograder.oracles import OracleFailed, kept_oracles
from utils.answering.traces import NotATrace, trace_from_rows
from utils.ranks import api, errors
from utils.ranks.run import Run
from utils.ranks.ship import pack
from utils.trace.events import Trace

MARGIN_S = 15.0  # what a launch may take beyond its own limit: starting ranks, ending them
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.LaunchError) and not issubclass(kind, KeyboardInterrupt)
}


class AnswerLost(Exception):
    """The process with the student's definitions is gone; the text says how."""


class Link(Protocol):
    """The way to the process that holds the student's definitions."""

    def probe(self, payload: bytes, options: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        """Have a probe run there. Returns the fields of an ANSWER; raises AnswerLost."""


@dataclass
class Judged:
    """What a test came to: passed, failed, lost (the answer's process is gone) or stopped at a limit.

    kind, text: of the error; traces: of its runs, `all_told` if all of them were journalled; credit: the number that
    its last line gives, an author's partial credit.
    """

    status: str
    kind: str = ""
    text: str = ""
    seconds: float = 0.0
    printed: str = ""
    traces: list[Trace] = field(default_factory=list)
    all_told: bool = True
    credit: float | None = None


class Verdict:
    """The verdict side of one submission.

    Example:
        verdict = Verdict(link, launch_s=10)
        verdict.share("imports", "from utils import check, launch")
        verdict.test("ring_sum", "assert launch(lambda: 1, ranks=2).values == [1, 1]", 60).status   # "passed"
    """

    def __init__(self, link: Link, launch_s: float) -> None:
        self.link, self.launch_s = link, launch_s
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.traces: list[Trace] = []
        self.all_told = True
        self.give_up = float("inf")

    def share(self, name: str, source: str) -> None:
        """Run a shared cell. An error here is a fault of the lab, and goes up."""
        with _quiet(io.StringIO()):
            exec(_compile(name, source), self.namespace)

    def test(self, name: str, source: str, limit_s: float) -> Judged:
        """Run a test cell in a copy of what the shared cells left; never raises for the student's faults.

        Raises OracleFailed where the lab's own reference could not be run.
        """
        self.traces, self.all_told, self.give_up = [], True, time.monotonic() + limit_s
        started, printed = time.monotonic(), io.StringIO()
        with _quiet(printed), self.routed():
            judged = self._run(name, source)
        judged.seconds, judged.printed = time.monotonic() - started, printed.getvalue()
        judged.traces, judged.all_told = self.traces, self.all_told
        return judged

    def _run(self, name: str, source: str) -> Judged:
        try:
            value = _run_with_value(name, source, dict(self.namespace))
        except TimeoutError as error:
            return Judged("stopped", "TimeoutError", str(error))
        except OracleFailed:
            raise  # nobody's answer is at fault
        except AnswerLost as error:
            return Judged("lost", "AnswerLost", str(error))
        except Exception as error:
            return Judged("failed", type(error).__name__, str(error))
        return Judged("passed", credit=float(value) if type(value) in (int, float) else None)

    @contextmanager
    def routed(self) -> Iterator[None]:
        """While this holds, `launch` asks the answer's process; `check.reference` does not, and keeps what it made."""
        before, api.router = api.router, self.launch
        try:
            with kept_oracles():
                yield
        finally:
            api.router = before

    def launch(self, fn: Any, *args: Any, **options: Any) -> Run:
        """What `launch` does in a test: the probe goes to the answer's process, its run comes back."""
        ranks, kwargs = options["ranks"], dict(options.pop("kwargs") or {})
        payload, _ = pack(fn, args, kwargs)  # the sources stay here: they are the test's
        limit = min(options["timeout"] or self.launch_s, self.launch_s)
        left = self.give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError
        chosen = {k: options[k] for k in ("ranks", "seed", "trace", "backend", "device")}
        chosen |= {"timeout": min(limit, left), "delay": dict(options["delay"] or {})}
        self.all_told = self.all_told and options["trace"] and options["backend"] != "nccl"
        fields = self.link.probe(payload, chosen, min(limit, left) + MARGIN_S)
        return self._read(fields, ranks)

    def _read(self, fields: Mapping[str, Any], ranks: int | None) -> Run:
        if "error" in fields:
            raise _error(fields)
        try:
            run = read_run(fields, ranks)
        except (NotATrace, KeyError, TypeError, ValueError) as error:
            raise errors.RankFailed(f"what came back from the ranks is not a run: {error}") from None
        self.traces.append(run.trace)
        return run


def read_run(fields: Mapping[str, Any], ranks: int | None) -> Run:
    """The Run that an ANSWER tells of. Raises ValueError (NotATrace among them) where it cannot be one."""
    count, trace = ranks or 1, trace_from_rows(fields["trace"])
    lists = {name: fields[name] for name in ("values", "stdout", "stderr", "peak_bytes")}
    for name, entries in lists.items():
        if type(entries) is not list or len(entries) != count:
            raise ValueError(f"{name} does not have one entry for each of {count} ranks")
    if trace.ranks != count:
        raise ValueError(f"its trace is of {trace.ranks} ranks, not {count}")
    if not all(type(t) is str for t in [*lists["stdout"], *lists["stderr"], fields["backend"], fields["device"]]):
        raise ValueError("what was printed is not text")
    if not all(type(n) is int and n >= 0 for n in lists["peak_bytes"]):
        raise ValueError("peak_bytes are not byte counts")
    notes = [str(note) for note in fields["notes"]]
    return Run(**lists, seconds=float(fields["seconds"]), trace=trace, backend=fields["backend"],
               device=fields["device"], notes=notes)  # fmt: skip


def _error(fields: Mapping[str, Any]) -> errors.LaunchError:
    """The error an ANSWER tells of; any class that is not one of ours becomes RankFailed."""
    kind, text, rank = fields["error"], str(fields.get("text", "")), fields.get("rank")
    if kind == "RankFailed":
        shown = fields.get("traceback")
        return errors.RankFailed(text, rank if type(rank) is int else None, shown if type(shown) is str else None)
    if kind in KINDS:
        return KINDS[kind](text)
    return errors.RankFailed(f"{kind}: {text}")


def _run_with_value(name: str, source: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line where that is an expression, as a notebook shows it."""
    code = _compile(name, source)
    tree = ast.parse(source)
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        exec(code, namespace)
        return None
    last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    exec(compile(tree, f"<{name}>", "exec"), namespace)
    return eval(compile(last, f"<{name}>", "eval"), namespace)


def _compile(name: str, source: str) -> Any:
    """Compile a cell under a name of its own, with its lines where tracebacks look for them."""
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    return compile(source, file, "exec")


@contextmanager
def _quiet(into: io.StringIO) -> Iterator[None]:
    """What a cell prints goes into `into`, not to the grader's terminal."""
    with redirect_stdout(into), redirect_stderr(into):
        yield
    sys.stdout.flush()
