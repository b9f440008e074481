"""The journal: exact bytes of every operation, nothing public escapes it, and torch's own wrappers are in it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from utils import launch

WORLDS = (1, 2, 3, 4, 5, 6, 7, 8)
N = 13  # elements: divides by no world size but 1
Moves = dict[tuple[int, int], int]


# -- what each operation must move, by brute force: bytes from rank to rank -------------------------------------------
def chunk(n: int, p: int, r: int) -> int:
    return torch.empty(n).tensor_split(p)[r].numel()


def moves(op: str, p: int, size: int) -> Moves:
    """Bytes (of `size`-byte elements) that leave rank i for rank j by the operation's definition."""
    pairs = [(i, j) for i in range(p) for j in range(p) if i != j]
    root = p - 1
    table = {
        "broadcast": lambda i, j: N if i == root else 0,
        "reduce": lambda i, j: N if j == root else 0,
        "scatter": lambda i, j: N if i == root else 0,
        "gather": lambda i, j: N if j == root else 0,
        "all_gather": lambda i, j: N,
        "all_gather_single": lambda i, j: N,
        "reduce_scatter": lambda i, j: N,
        "reduce_scatter_single": lambda i, j: N,
        "all_to_all": lambda i, j: N,
        "all_to_all_single": lambda i, j: i + j + 1,
        "all_reduce": lambda i, j: chunk(N, p, j) + chunk(N, p, i),
        "barrier": lambda i, j: 0,
        "send_recv": lambda i, j: N if j == (i + 1) % p else 0,
    }
    return {(i, j): table[op](i, j) * size for i, j in pairs}


def perform(ops: list[str], dtype: torch.dtype) -> list[str]:
    """Runs on each rank: the operations in order, each once, on tensors that the operation's rules ask for."""
    r, p = dist.get_rank(), dist.get_world_size()
    root = p - 1
    x = torch.ones(N, dtype=dtype)
    many = [torch.ones(N, dtype=dtype) for _ in range(p)]
    ins = [torch.ones(r + j + 1, dtype=dtype) for j in range(p)]
    outs = [torch.ones(r + j + 1, dtype=dtype) for j in range(p)]
    table = {
        "broadcast": lambda: dist.broadcast(x, root),
        "reduce": lambda: dist.reduce(x, root),
        "scatter": lambda: dist.scatter(x, many if r == root else None, root),
        "gather": lambda: dist.gather(x, many if r == root else None, root),
        "all_gather": lambda: dist.all_gather(many, x),
        "all_gather_single": lambda: dist.all_gather_single(torch.cat(many), x),
        "reduce_scatter": lambda: dist.reduce_scatter(x, many),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(x, torch.cat(many)),
        "all_to_all": lambda: dist.all_to_all([torch.empty_like(x) for _ in many], many),
        "all_to_all_single": lambda: dist.all_to_all_single(
            torch.cat(outs), torch.cat(ins), [t.numel() for t in outs], [t.numel() for t in ins]
        ),
        "all_reduce": lambda: dist.all_reduce(x),
        "barrier": lambda: dist.barrier(),
        "send_recv": lambda: p > 1 and _ring(x, r, p),
    }
    for op in ops:
        table[op]()
    return ops


def _ring(x: torch.Tensor, r: int, p: int) -> None:
    work = dist.isend(x, (r + 1) % p)
    dist.recv(torch.empty_like(x), (r - 1) % p)
    work.wait()


OPS = [
    "broadcast", "reduce", "scatter", "gather", "all_gather", "all_gather_single", "reduce_scatter",
    "reduce_scatter_single", "all_to_all", "all_to_all_single", "all_reduce", "barrier", "send_recv",
]  # fmt: skip


@pytest.mark.parametrize("p", WORLDS)
def test_bytes_of_every_operation_are_exact(p: int) -> None:
    run = launch(perform, OPS, torch.float64, ranks=p, show=False)
    for op in OPS:
        expected = moves(op, p, 8)
        for r in range(p):
            events = [
                e
                for e in run.trace.of(r)
                if op in (e.call, {"send_recv": {"isend": op, "recv": op}}.get(op, {}).get(e.call))
            ]
            sent, received = sum(e.sent for e in events), sum(e.received for e in events)
            assert sent == sum(n for (i, _), n in expected.items() if i == r), (op, p, r)
            assert received == sum(n for (_, j), n in expected.items() if j == r), (op, p, r)
    total = [sum(f(r) for r in range(p)) for f in (run.trace.bytes_sent, run.trace.bytes_received)]
    assert total[0] == total[1] == sum(sum(moves(op, p, 8).values()) for op in OPS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8])
def test_bytes_follow_the_dtype(dtype: torch.dtype) -> None:
    run = launch(perform, ["send_recv"], dtype, ranks=3)
    assert [run.trace.bytes_sent(r) for r in range(3)] == [N * dtype.itemsize] * 3
    assert run.trace.of(0)[0].dtype == str(dtype).removeprefix("torch.")


def test_questions_about_messages() -> None:
    run = launch(perform, ["send_recv", "barrier"], torch.float32, ranks=4)
    trace = run.trace
    assert trace.peers(1) == {2} and trace.messages(1) == 1 and trace.bytes_sent(1, to=2) == 4 * N
    assert trace.bytes_sent(1, to=0) == 0 and trace.bytes_received(1, source=0) == 4 * N
    assert trace.ops(0) == ["send", "recv", "barrier"] and trace.collectives(0) == ["barrier"]
    event = trace.of(2)[0]
    assert (
        event.call == "isend"
        and event.function == "_ring"
        and event.shape == (N,)
        and event.file.endswith("test_trace.py")
    )
    assert event.start <= event.wait <= event.end


# -- nothing escapes --------------------------------------------------------------------------------------------------
SILENT = {  # public functions with a group that move nothing between ranks
    "get_rank",
    "get_world_size",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_pg_count",
    "destroy_process_group",
    "is_initialized",
    "shrink_group",
    "supports_complex",
    "init_process_group",
    "batch_isend_irecv",
    "split_group",
    "get_default_backend_for_device",
}


def everything() -> dict[str, int]:
    """Runs on each rank: every public communicating function once; returns how many events each journaled."""
    r, p = dist.get_rank(), dist.get_world_size()
    x, many = torch.ones(4), [torch.ones(4) for _ in range(p)]
    objects: list = [None] * p
    calls = {
        "all_gather": lambda: dist.all_gather(many, x),
        "all_gather_coalesced": lambda: dist.all_gather_coalesced([[torch.ones(4)] for _ in range(p)], [x]),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.ones(4 * p), x),
        "all_gather_object": lambda: dist.all_gather_object(objects, r),
        "all_gather_single": lambda: dist.all_gather_single(torch.ones(4 * p), x),
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([x, torch.ones(2)]),
        "all_to_all": lambda: dist.all_to_all([torch.ones(1) for _ in range(p)], [torch.ones(1) for _ in range(p)]),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.ones(p), torch.ones(p)),
        "barrier": lambda: dist.barrier(),
        "broadcast": lambda: dist.broadcast(x, 0),
        "broadcast_object_list": lambda: dist.broadcast_object_list([r], 0),
        "gather": lambda: dist.gather(x, many if r == 0 else None, 0),
        "gather_object": lambda: dist.gather_object(r, objects if r == 0 else None, 0),
        "irecv": lambda: None,
        "isend": lambda: _ring(x, r, p),
        "monitored_barrier": lambda: dist.monitored_barrier(),
        "new_group": lambda: dist.new_group([0, 1]),
        "new_subgroups": lambda: dist.new_subgroups(p),
        "new_subgroups_by_enumeration": lambda: dist.new_subgroups_by_enumeration([list(range(p))]),
        "recv": lambda: None,
        "recv_object_list": lambda: None,
        "reduce": lambda: dist.reduce(x, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.ones(4), many),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(torch.ones(4), torch.cat(many)),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.ones(4), torch.cat(many)),
        "scatter": lambda: dist.scatter(x, many if r == 0 else None, 0),
        "scatter_object_list": lambda: dist.scatter_object_list([None], list(range(p)) if r == 0 else None, 0),
        "send": lambda: dist.send(x, 1) if r == 0 else dist.recv(torch.ones(4), 0) if r == 1 else None,
        "send_object_list": lambda: (
            dist.send_object_list([1], 1) if r == 0 else dist.recv_object_list([None], 0) if r == 1 else None
        ),
    }
    import warnings

    from utils.trace import install, journal

    writer, counts = install._state["recorder"].writer, {}
    warnings.simplefilter("ignore")  # older spellings warn
    for name, call in calls.items():
        before = writer.get(journal.COUNT_AT)
        call()
        counts[name] = writer.get(journal.COUNT_AT) - before
    return counts


def test_no_public_collective_escapes_the_journal() -> None:
    counts = launch(everything, ranks=2, show=False).values[0]
    escaped = [name for name, n in counts.items() if n == 0 and name not in ("irecv", "recv", "recv_object_list")]
    assert not escaped
    public = {
        name
        for name in dist.distributed_c10d.__all__
        if inspect.isfunction(getattr(dist.distributed_c10d, name))
        and {"group", "ranks", "ranks_per_subgroup_list", "group_size"}
        & set(inspect.signature(getattr(dist.distributed_c10d, name)).parameters)
    }
    assert public - SILENT <= set(counts), (
        f"torch has new functions that no test calls: {public - SILENT - set(counts)}"
    )


def test_every_operation_of_a_process_group_is_overridden() -> None:
    from utils.trace.group import TracedGroup

    inert = {
        "abort",
        "boxed",
        "unbox",
        "get_group_store",
        "merge_remote_group",
        "name",
        "rank",
        "set_timeout",
        "shutdown",
        "size",
        "split_group",
        "use_pg_for_symm_mem_rendezvous",
    }
    methods = {
        m for m in dir(dist.ProcessGroup) if callable(getattr(dist.ProcessGroup, m)) and m[0] != "_" and m[0].islower()
    }
    methods |= {"_allgather_base", "_reduce_scatter_base"}
    assert not {m for m in methods - inert if m not in vars(TracedGroup)}


# -- torch's own parallel wrappers ------------------------------------------------------------------------------------
def ddp_step() -> int:
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)))
    model(torch.ones(2, 5) * dist.get_rank()).sum().backward()
    return sum(p.numel() for p in model.parameters())


def test_what_ddp_sends_is_journaled() -> None:
    run = launch(ddp_step, ranks=2)
    grads = [e for e in run.trace.of(0) if e.op == "all_reduce" and e.dtype == "float32"]
    assert sum(e.numel for e in grads) == run.values[0] == 66
    assert all(e.function == "ddp_step" for e in grads)


def fsdp_step() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = fully_shard(torch.nn.Linear(6, 4, bias=False), mesh=mesh)
    model(torch.ones(2, 6)).sum().backward()


def test_what_fsdp2_sends_is_journaled() -> None:
    run = launch(fsdp_step, ranks=2, timeout=120)
    seen = {e.op: e for e in run.trace.of(0)}
    assert seen["all_gather"].sent == 12 * 4 and seen["reduce_scatter"].sent == 12 * 4


def functional() -> list[float]:
    import torch.distributed._functional_collectives as fc

    return (fc.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 0).tolist()


def test_functional_collectives_are_journaled() -> None:
    run = launch(functional, ranks=2, timeout=120)
    assert run.values == [[2.0] * 3] * 2 and run.trace.collectives(0) == ["all_reduce"]


# -- the journal itself -----------------------------------------------------------------------------------------------
def test_without_a_trace_nothing_is_written() -> None:
    run = launch(perform, ["all_reduce"], torch.float32, ranks=2, trace=False)
    assert run.trace.events == []


def test_more_operations_than_the_journal_holds() -> None:
    def many() -> int:
        x = torch.ones(1)
        from utils.trace import journal

        for _ in range(journal.CAPACITY + 5):
            dist.broadcast(x, 0)
        return journal.CAPACITY

    run = launch(many, ranks=1, timeout=240)
    assert not run.trace.complete and len(run.trace.of(0)) == run.value


def test_a_garbled_journal_gives_nonsense_not_a_crash() -> None:
    import os
    import random

    from utils.trace import events, journal

    fd = journal.create()
    try:
        writer, reader = journal.Writer.open(fd), journal.Reader(fd)
        noise = random.Random(0)
        writer.map[8:4096] = noise.randbytes(4096 - 8)
        writer.map[journal.RECORDS_AT : journal.RECORDS_AT + 6400] = noise.randbytes(6400)
        writer.put(journal.COUNT_AT, 40)
        assert len(events.read_events(0, reader.snapshot(), 0)) <= 40
    finally:
        os.close(fd)


def test_timeline_and_perfetto_show_every_operation(tmp_path: Path) -> None:
    run = launch(perform, ["send_recv", "all_reduce"], torch.float32, ranks=3)
    ax = run.trace.plot()
    assert len(ax.patches) >= len(run.trace.events) and [t.get_text() for t in ax.get_yticklabels()] == [
        "rank 0",
        "rank 1",
        "rank 2",
    ]
    rows = json.loads(run.trace.save_perfetto(tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(row["ph"] == "b" for row in rows) == len(run.trace.events) and sum(row["ph"] == "f" for row in rows) == 3
