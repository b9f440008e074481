"""The alpha-beta model of a message, and the two bandwidths by which collectives are compared.

T(n) = alpha + n * beta: alpha is the fixed cost of a message in seconds, beta the seconds for one byte
more, n the bytes. Congestion, topology and the arithmetic of a reduction are left out. Bandwidth is in
bytes per second; where it is printed, 1 GB = 10**9 bytes and 1 GiB = 2**30 bytes. Bus factors: NVIDIA
nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a rank must move over its busiest link, in units of the buffer: parts of (n - 1) / n.
_PARTS_MOVED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1}
_WHOLE_BUFFER = ("broadcast", "reduce")


@dataclass(frozen=True)
class AlphaBeta:
    """A link: alpha in seconds a message, beta in seconds a byte. Negative values raise ValueError.

    >>> link = AlphaBeta(alpha=50e-6, beta=1e-9)        # 50 microseconds, 1 GB/s
    >>> round(link.time(1_000_000) * 1e6)               # microseconds for 1 MB
    1050
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta >= 0):
            raise ValueError(f"alpha={self.alpha} s and beta={self.beta} s/byte: neither can be negative")

    def time(self, nbytes: float) -> float:
        """Seconds for one message of nbytes bytes."""
        return self.alpha + nbytes * self.beta

    @property
    def bandwidth(self) -> float:
        """Bytes per second of a message so long that alpha does not count: 1 / beta."""
        return 1 / self.beta if self.beta else float("inf")


def bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth for a collective, named in torch's spelling, on `ranks` ranks.

    Unknown names and ranks below 1 raise ValueError.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    if ranks < 1:
        raise ValueError(f"ranks={ranks}: a group has at least 1 rank")
    if op in _WHOLE_BUFFER:
        return 1.0
    if op not in _PARTS_MOVED:
        known = ", ".join(sorted([*_PARTS_MOVED, *_WHOLE_BUFFER]))
        raise ValueError(f"no bus factor is known for {op!r}; there is one for {known}")
    return _PARTS_MOVED[op] * (ranks - 1) / ranks


def algbw(nbytes: float, seconds: float) -> float:
    """Algorithm bandwidth: bytes of the buffer over seconds, in bytes per second.

    The buffer is the larger of a rank's input and output: for all_gather the whole result, for
    reduce_scatter the whole input. seconds must be positive, else ValueError.

    >>> algbw(8_000_000, 0.004)
    2000000000.0
    """
    if seconds <= 0:
        raise ValueError(f"seconds={seconds}: a measured time is above 0")
    return nbytes / seconds


def busbw(op: str, nbytes: float, seconds: float, ranks: int) -> float:
    """Bus bandwidth in bytes per second: algbw times `bus_factor`, comparable with the bandwidth of one link.

    >>> busbw("all_reduce", 8_000_000, 0.004, ranks=4)
    3000000000.0
    """
    return algbw(nbytes, seconds) * bus_factor(op, ranks)
