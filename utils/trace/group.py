"""A process group that does what the inner backend does and journals every operation on the way.

`TracedGroup` is registered with torch as the backend "traced". It subclasses `dist.ProcessGroup`, keeps gloo (or nccl)
as the backend of its devices, and overrides every operation, so what DistributedDataParallel's reducer, DTensor, FSDP2
and functional collectives send passes through it too. Each operation returns a `TracedWork`, whose `wait` tells the
journal that this rank is waiting and for what: that is what a deadlock is later proved from.

Left out: completion times of work nobody waits for, and of nccl work, whose `wait` returns before the transfer ends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .ops import all_reduce_bytes, rooted_bytes
from .recorder import Recorder, TracedMessage, TracedWork

_reduce_codes: dict[Any, int] = {}


def _reduce_code(op: Any) -> int:
    """The code of a ReduceOp in the journal (its names come in torch's own numbering, shifted by one)."""
    kind = getattr(op, "op", op)
    code = _reduce_codes.get(kind)
    if code is None:
        code = _reduce_codes[kind] = int(kind) + 1 if 0 <= int(kind) < 9 else 0
    return code


def _nbytes(tensors: list[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _sizes(tensors: list[Any]) -> str:
    return ",".join(str(t.numel()) for t in tensors)


class TracedGroup(dist.ProcessGroup):
    """A group of ranks whose operations are journaled and carried out by `inner`, a plain group of the same ranks.

    `ranks` are the members' global numbers in group order. (A binding's own method called through `super()` would come
    back to the override, so the inner group is another object.)
    """

    def __init__(self, inner: dist.ProcessGroup, name: str, ranks: list[int], recorder: Recorder) -> None:
        rank, size = inner.rank(), inner.size()
        super().__init__(rank, size)
        self.inner, self.ranks, self.recorder, self.c10d_name = inner, ranks, recorder, name
        self.me, self.p = rank, size
        self.has_nccl = False
        self.number = recorder.groups
        recorder.groups += 1
        self.introduced = False

    def introduce(self) -> None:
        """Tell the journal once what this group's number means (its name and members)."""
        self.introduced = True
        desc = self.group_desc
        shown = "world" if desc == "default_pg" else desc if desc and desc != "undefined" else str(self.ranks)
        self.recorder.add(
            "group",
            self.number,
            None,
            0,
            0,
            0,
            extra=f"{self.c10d_name}|{shown}|{','.join(map(str, self.ranks))}",
        )

    def run(
        self,
        issue: Any,
        args: tuple[Any, ...],
        op: str,
        tensor: Any,
        nbytes: int,
        sent: int,
        received: int,
        peer: int = -1,
        tag: int = 0,
        reduce: int = 0,
        extra: str = "",
        kind: type[TracedWork] = TracedWork,
    ) -> Any:
        """Journal the operation, let the backend do it, and hand out its work with waiting journaled."""
        if not self.introduced:
            self.introduce()
        recorder = self.recorder
        index = recorder.add(op, self.number, tensor, nbytes, sent, received, peer, tag, reduce, extra)
        try:
            work = issue(*args)
        except BaseException:
            recorder.fail(index)
            raise
        return None if work is None else kind(work, recorder, index)

    # -- point to point -------------------------------------------------------------------------------------------
    def message(self, op: str, tensors: list[Any], peer: int | None, tag: int) -> Any:
        """A send or a recv of one tensor; through a copy in host memory where gloo cannot reach the tensor."""
        tensor, n = tensors[0], _nbytes(tensors)
        moved = (n, 0) if op == "send" else (0, n)
        host = _host_copy(tensor, op == "send") if self.staged(tensor) else None
        carried = tensors if host is None else [host]
        if peer is None:
            issue, args = self.inner.recv_anysource, (carried, tag)
        else:
            issue, args = getattr(self.inner, op), (carried, peer, tag)
        number = -1 if peer is None else self.ranks[peer]
        work = self.run(issue, args, op, tensor, n, *moved, peer=number, tag=tag, kind=TracedMessage)
        if host is not None:
            work.host, work.target = host, tensor if op == "recv" else None
        return work

    def staged(self, tensor: Any) -> bool:
        """gloo moves CUDA tensors in collectives but not in messages."""
        return tensor.is_cuda and not self.has_nccl

    def send(self, tensors: list[Any], dst: int, tag: int) -> Any:
        return self.message("send", tensors, dst, tag)

    def recv(self, tensors: list[Any], src: int, tag: int) -> Any:
        return self.message("recv", tensors, src, tag)

    def recv_anysource(self, tensors: list[Any], tag: int) -> Any:
        return self.message("recv", tensors, None, tag)

    # -- one to all, all to one -----------------------------------------------------------------------------------
    def rooted(
        self,
        issue: Any,
        args: tuple[Any, ...],
        op: str,
        own: list[Any],
        root: int,
        chunks: list[Any],
        **more: Any,
    ) -> Any:
        nbytes = _nbytes(own)
        others = _nbytes([c for i, c in enumerate(chunks) if i != self.me])
        sent, received = rooted_bytes(op, root == self.me, nbytes, self.p, others)
        extra = _sizes(chunks) if chunks else ""
        return self.run(issue, args, op, own[0], nbytes, sent, received, peer=self.ranks[root], extra=extra, **more)

    def broadcast(self, tensors: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.BroadcastOptions()
        return self.rooted(self.inner.broadcast, (tensors, opts), "broadcast", tensors, opts.rootRank, [])

    def reduce(self, tensors: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.ReduceOptions()
        code = _reduce_code(opts.reduceOp)
        return self.rooted(self.inner.reduce, (tensors, opts), "reduce", tensors, opts.rootRank, [], reduce=code)

    def gather(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.GatherOptions()
        chunks = outputs[0] if outputs else []
        return self.rooted(self.inner.gather, (outputs, inputs, opts), "gather", inputs, opts.rootRank, chunks)

    def scatter(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.ScatterOptions()
        chunks = inputs[0] if inputs else []
        return self.rooted(self.inner.scatter, (outputs, inputs, opts), "scatter", outputs, opts.rootRank, chunks)

    # -- all to all -----------------------------------------------------------------------------------------------
    def reduced(self, issue: Any, tensors: list[Any], opts: Any) -> Any:
        if len(tensors) == 1:
            tensor = tensors[0]
            numel, size = tensor.numel(), tensor.element_size()
            sent, received = all_reduce_bytes(numel, self.p, self.me, size)
            code = _reduce_code(opts.reduceOp)
            return self.run(issue, (tensors, opts), "all_reduce", tensor, numel * size, sent, received, reduce=code)
        moved = [all_reduce_bytes(t.numel(), self.p, self.me, t.element_size()) for t in tensors]
        sent = sum(s for s, _ in moved)
        extra = _sizes(tensors)
        code = _reduce_code(opts.reduceOp)
        return self.run(
            issue,
            (tensors, opts),
            "all_reduce",
            tensors[0],
            _nbytes(tensors),
            sent,
            sent,
            reduce=code,
            extra=extra,
        )

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
        return self.reduced(self.inner.allreduce, tensors, opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        return self.reduced(self.inner.allreduce_coalesced, tensors, opts or dist.AllreduceCoalescedOptions())

    def gathered(self, issue: Any, args: tuple[Any, ...], inputs: list[Any], out_bytes: int) -> Any:
        own = _nbytes(inputs)
        extra = _sizes(inputs) if len(inputs) > 1 else ""
        return self.run(issue, args, "all_gather", inputs[0], own, (self.p - 1) * own, out_bytes - own, extra=extra)

    def allgather(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        args = (outputs, inputs, opts or dist.AllgatherOptions())
        return self.gathered(self.inner.allgather, args, inputs, sum(map(_nbytes, outputs)))

    def allgather_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        args = (outputs, inputs, opts or dist.AllgatherOptions())
        return self.gathered(self.inner.allgather_coalesced, args, inputs, sum(map(_nbytes, outputs)))

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        args = (output, input, opts or dist.AllgatherOptions())
        return self.gathered(self.inner.all_gather_single, args, [input], _nbytes([output]))

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        return self.all_gather_single(output, input, opts)

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        args = (outputs, inputs, opts or dist.AllgatherOptions())
        return self.gathered(self.inner.all_gather_single_coalesced, args, inputs, _nbytes(outputs))

    def allgather_into_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        return self.all_gather_single_coalesced(outputs, inputs, opts)

    def scattered(
        self, issue: Any, args: tuple[Any, ...], outputs: list[Any], in_bytes: int, sizes: str, opts: Any
    ) -> Any:
        own = _nbytes(outputs)
        moved = {"sent": in_bytes - own, "received": (self.p - 1) * own}
        return self.run(
            issue,
            args,
            "reduce_scatter",
            outputs[0],
            in_bytes,
            **moved,
            reduce=_reduce_code(opts.reduceOp),
            extra=sizes,
        )

    def reduce_scatter(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        args, sizes = (outputs, inputs, opts), _sizes([t for chunks in inputs for t in chunks])
        return self.scattered(self.inner.reduce_scatter, args, outputs, sum(map(_nbytes, inputs)), sizes, opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        sizes = ",".join([str(input.numel() // self.p)] * self.p)
        return self.scattered(
            self.inner.reduce_scatter_single, (output, input, opts), [output], _nbytes([input]), sizes, opts
        )

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        return self.reduce_scatter_single(output, input, opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        args = (outputs, inputs, opts)
        return self.scattered(
            self.inner.reduce_scatter_single_coalesced, args, outputs, _nbytes(inputs), _sizes(inputs), opts
        )

    def reduce_scatter_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced(outputs, inputs, opts)

    def exchanged(self, issue: Any, args: tuple[Any, ...], tensor: Any, ins: list[int], outs: list[int]) -> Any:
        """An all-to-all of `ins[j]` elements to and `outs[j]` elements from group rank j."""
        size = tensor.element_size()
        sent, received = (sum(n for j, n in enumerate(part) if j != self.me) * size for part in (ins, outs))
        extra = f"{','.join(map(str, ins))};{','.join(map(str, outs))}"
        return self.run(issue, args, "all_to_all", tensor, sum(ins) * size, sent, received, extra=extra)

    def all_to_all_single(
        self, output: Any, input: Any, out_splits: list[int], in_splits: list[int], opts: Any = None
    ) -> Any:
        args = (output, input, out_splits, in_splits, opts or dist.AllToAllOptions())
        return self.exchanged(
            self.inner.all_to_all_single,
            args,
            input,
            _elements(input, in_splits, self.p),
            _elements(output, out_splits, self.p),
        )

    def alltoall_base(
        self, output: Any, input: Any, out_splits: list[int], in_splits: list[int], opts: Any = None
    ) -> Any:
        return self.all_to_all_single(output, input, out_splits, in_splits, opts)

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        args = (outputs, inputs, opts or dist.AllToAllOptions())
        return self.exchanged(
            self.inner.alltoall, args, inputs[0], [t.numel() for t in inputs], [t.numel() for t in outputs]
        )

    # -- waiting for each other -----------------------------------------------------------------------------------
    def barrier(self, opts: Any = None) -> Any:
        return self.run(self.inner.barrier, (opts or dist.BarrierOptions(),), "barrier", None, 0, 0, 0)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        if not self.introduced:
            self.introduce()
        recorder = self.recorder
        index = recorder.add("barrier", self.number, None, 0, 0, 0)
        before, failed = recorder.begin_wait(index, timeout is not None), True
        try:
            self.inner.monitored_barrier(timeout, wait_all_ranks)
            failed = False
        finally:
            recorder.end_wait(index, before, failed)


def _host_copy(tensor: Any, filled: bool) -> Any:
    """A tensor like `tensor` in host memory, with its values where they are to be sent."""
    return tensor.detach().to("cpu", copy=True) if filled else torch.empty_like(tensor, device="cpu")


def _elements(tensor: Any, splits: list[int], p: int) -> list[int]:
    """Elements for each rank: `splits` rows of dimension 0, or equal parts where it is empty."""
    if not splits:
        return [tensor.numel() // p] * p
    row = tensor.numel() // tensor.shape[0] if tensor.ndim and tensor.shape[0] else 0
    return [n * row for n in splits]
