"""Names of the operations in a journal, and the logical bytes each one moves.

Logical bytes are what the operation's definition makes a rank send and receive, whatever algorithm carries them. For a
buffer of S bytes (or a shard of s bytes a rank) on p ranks, a rank sends

    send S | broadcast: root (p-1)S | reduce: others S | scatter: root, all chunks but its own | gather: others s
    all_gather (p-1)s | reduce_scatter: all chunks but its own | all_to_all: all chunks but its own | barrier 0
    all_reduce: a reduce_scatter and an all_gather of chunks as even as `tensor_split` makes them, 2(p-1)/p S

which is the optimum that nccl-tests' bus factors are built on. Bytes received mirror these, so over the ranks of a
group the sums of both are equal.

Worked example: `all_reduce_bytes(12, 4, 0, 8)` is `(144, 144)`: 2 * 3/4 * 96 bytes.
"""

from __future__ import annotations

OPS = (
    "group", "send", "recv", "broadcast", "reduce", "all_reduce", "scatter", "gather", "all_gather", "reduce_scatter",
    "all_to_all", "barrier", "new_group",
)  # fmt: skip
CODE = {name: code for code, name in enumerate(OPS)}
COLLECTIVES = frozenset(OPS[3:])
REDUCES = ("", "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
DTYPES = (
    "", "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "mixed",
)  # fmt: skip
DTYPE_CODE = {name: code for code, name in enumerate(DTYPES)}


def all_reduce_bytes(numel: int, world_size: int, rank: int, itemsize: int) -> tuple[int, int]:
    """Bytes `rank` sends and receives in an all_reduce of `numel` elements of `itemsize` bytes."""
    own = numel // world_size + (rank < numel % world_size)
    moved = ((numel - own) + (world_size - 1) * own) * itemsize
    return moved, moved


def rooted_bytes(op: str, is_root: bool, nbytes: int, world_size: int, others: int) -> tuple[int, int]:
    """Bytes sent and received by one rank of broadcast, reduce, scatter or gather.

    `nbytes` is the rank's own tensor, `others` the root's chunks for (or from) all other ranks.
    """
    many = others if op in ("scatter", "gather") else (world_size - 1) * nbytes
    outward = op in ("broadcast", "scatter")
    if is_root:
        return (many, 0) if outward else (0, many)
    return (0, nbytes) if outward else (nbytes, 0)
