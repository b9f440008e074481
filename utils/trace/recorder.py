"""Writing the journal of a rank: the recorder that all its groups share, and the work that journals waiting."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import journal as jn
from . import sites
from .ops import CODE, COLLECTIVES, DTYPE_CODE

_NO_LIMIT = timedelta(0)
_NO_SHAPE = (0,) * 6
NAMED = 2000  # operations of a rank whose variables are looked up; a loop's later rounds are like its first
_now = time.monotonic_ns


_dtype_codes: dict[torch.dtype, int] = {}


def _dtype_code(dtype: torch.dtype) -> int:
    code = _dtype_codes.get(dtype)
    if code is None:
        code = _dtype_codes[dtype] = DTYPE_CODE.get(str(dtype).removeprefix("torch."), 0)
    return code


class Recorder:
    """Writes one rank's journal on behalf of all its groups."""

    def __init__(self, writer: jn.Writer) -> None:
        self.writer = writer
        self.sites: dict[tuple[Any, int], int] = {}
        self.calls: dict[str, int] = {}
        self.groups = 0

    def site(self, tensor: Any) -> tuple[int, int, int]:
        """Text offsets of the user's line (`file:line:function`), the public call, and the names of `tensor` there."""
        call, frame = sites.find(4)
        if frame is None:
            return 0, self.call(call), 0
        key = (frame.f_code, frame.f_lineno)
        at = self.sites.get(key)
        if at is None:
            code, line = key
            at = self.sites[key] = self.writer.text(f"{code.co_filename}:{line}:{code.co_name}")
        name = self.calls.get(call) or self.call(call)
        held = sites.names_of(tensor, frame) if tensor is not None and self.writer.count < NAMED else ""
        return at, name, self.writer.text(held) if held else 0

    def call(self, name: str) -> int:
        """The text offset of a public function's name."""
        at = self.calls[name] = self.writer.text(name)
        return at

    def add(
        self, op: str, group: int, tensor: Any, nbytes: int, sent: int, received: int,
        peer: int = -1, tag: int = 0, reduce: int = 0, extra: str = "",
    ) -> int:  # fmt: skip
        """Journal one operation; returns its index."""
        line, call, name = self.site(tensor if op in COLLECTIVES else None)
        flags = 0
        if tensor is None:
            dtype, numel, shape = 0, 0, _NO_SHAPE
        else:
            dtype, numel = _dtype_code(tensor.dtype), tensor.numel()
            shape = (*tensor.shape, *_NO_SHAPE[tensor.ndim :]) if tensor.ndim <= 6 else tuple(tensor.shape[:6])
            if not tensor.is_contiguous():
                flags = jn.STRIDED
        text = self.writer.text(extra) if extra else 0
        ndim = 0 if tensor is None else tensor.ndim
        return self.writer.add(
            CODE[op],
            dtype,
            ndim,
            reduce,
            group,
            flags,
            peer,
            tag,
            line,
            call,
            text,
            name,
            nbytes,
            sent,
            received,
            numel,
            _now(),
            0,
            0,
            *shape,
        )

    def begin_wait(self, index: int, limited: bool) -> int:
        """Say that this thread now waits for operation `index`; returns what it waited for before."""
        if limited:
            self.writer.flag(index, jn.HAS_LIMIT)
        return self.writer.begin_wait(index, _now(), threading.active_count())

    def end_wait(self, index: int, before: int, failed: bool = False) -> None:
        if failed:
            self.writer.flag(index, jn.FAILED)
        self.writer.end_wait(index, _now(), before)

    def fail(self, index: int) -> None:
        """The backend refused operation `index` at once: nothing was sent."""
        self.writer.flag(index, jn.FAILED)
        self.writer.stamp(index, jn.END_AT, _now())


class TracedWork(dist.Work):
    """The inner work, with the moments of waiting written down."""

    done = False

    def __init__(self, inner: Any, recorder: Recorder, index: int) -> None:
        super().__init__()
        self.inner, self.recorder, self.index = inner, recorder, index

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        writer, index = self.recorder.writer, self.index
        limited = timeout is not _NO_LIMIT and timeout != _NO_LIMIT
        if limited:
            writer.flag(index, jn.HAS_LIMIT)
        before = writer.begin_wait(index, _now(), threading.active_count())
        try:
            result = self.inner.wait(timeout) if limited else self.inner.wait()
        except BaseException:
            writer.flag(index, jn.FAILED)
            self.over(before)
            raise
        self.over(before)
        return result

    def over(self, before: int) -> None:
        """The wait is over, well or not."""
        self.done = True
        self.recorder.writer.end_wait(self.index, _now(), before)

    def is_completed(self) -> bool:
        completed = self.inner.is_completed()
        if completed and not self.done:
            self.done = True
            self.recorder.writer.stamp(self.index, jn.END_AT, _now())
        return completed

    def get_future(self) -> Any:
        return self.inner.get_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_success(self) -> bool:
        return self.inner.is_success()

    def exception(self) -> Any:
        return self.inner.exception()

    def result(self) -> Any:
        return self.inner.result()

    def synchronize(self) -> None:
        self.inner.synchronize()

    def source_rank(self) -> int:
        return self.inner._source_rank()

    def _source_rank(self) -> int:
        return self.inner._source_rank()


class TracedMessage(TracedWork):
    """The work of a send or a recv. `host` is its buffer in host memory, where it has one, which lives as long as the
    work; `target` is the tensor that it fills in the end."""

    host: Any = None
    target: Any = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        result = super().wait(timeout)
        if self.target is not None:
            self.target.copy_(self.host)
            self.target = None
        return result

    def __del__(self) -> None:
        # gloo cancels a message whose work nobody holds any more; the partner then waits without end
        if not self.done and not self.inner.is_completed():
            self.recorder.writer.flag(self.index, jn.DROPPED)
