"""The journal: one rank's operations in memory that its parent can read, even when the rank is stuck or dead.

Each rank writes a header, an append-only table of text and a ring of fixed-size records into shared memory that has no
name (a sealed memfd on Linux, an unlinked file elsewhere), so nothing is left behind whoever dies. A record is written
once when the operation is issued; its times are filled in later. Past `CAPACITY` records the oldest are overwritten and
the header still counts all of them.

Left out: locks. One thread of the rank writes at a time (under the GIL), and the reader copes with a record in flight:
the count in the header grows only after the record is whole.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass

CAPACITY = 1 << 17
TEXT_BYTES = 4 << 20
HEADER = struct.Struct("<8sQQQQQQQ")
# seq op dtype ndim reduce | group flags peer tag line call extra name |
# nbytes sent received numel start wait end | shape[6]
RECORD = struct.Struct("<IBBBBHHiiIIII7Q6I")
WAIT_AT, END_AT = RECORD.size - 24 - 16, RECORD.size - 24 - 8
STRIDE = 128
TEXT_AT = 256
RECORDS_AT = TEXT_AT + TEXT_BYTES
SIZE = RECORDS_AT + CAPACITY * STRIDE
MAGIC = b"journal1"
# offsets of header fields that change while running
COUNT_AT, TEXT_USED_AT, BLOCKED_AT, STATE_AT, STATE_TIME_AT, THREADS_AT, START_AT = (8 * i for i in range(1, 8))

RUNNING, RETURNED, RAISED, PAUSED = 0, 1, 2, 3
MEETING = 1  # in START_AT, while the ranks form their group: they have not started yet
STRIDED, FAILED, HAS_LIMIT, DROPPED = 1, 2, 4, 8

assert RECORD.size <= STRIDE

_Q = struct.Struct("<Q")


def create() -> int:
    """A file descriptor of a fresh, nameless, zeroed journal of `SIZE` bytes (pages cost memory only once written)."""
    if hasattr(os, "memfd_create"):
        import fcntl

        fd = os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SIZE)
        # a rank that shrank it would kill the reader with SIGBUS
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd
    with tempfile.TemporaryFile() as file:
        fd = os.dup(file.fileno())
    os.ftruncate(fd, SIZE)
    return fd


class Writer:
    """The rank's end. `add` costs about a microsecond."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.map = memory
        self.count, self.text_used = 0, 4
        self.texts: dict[str, int] = {}
        HEADER.pack_into(self.map, 0, MAGIC, 0, self.text_used, 0, RUNNING, 0, 1, 0)

    @classmethod
    def open(cls, fd: int) -> Writer:
        """A writer on the memory behind `fd`, with nothing written yet."""
        return cls(mmap.mmap(fd, SIZE))

    def text(self, value: str) -> int:
        """The offset of `value` in the table of text, written there once; 0 when the table is full."""
        at = self.texts.get(value)
        if at is not None:
            return at
        data = value.encode(errors="replace")[:4000]
        at = self.text_used
        if at + 4 + len(data) > TEXT_BYTES:
            return 0
        self.map[TEXT_AT + at : TEXT_AT + at + 4 + len(data)] = struct.pack("<I", len(data)) + data
        self.text_used = at + 4 + len(data)
        _Q.pack_into(self.map, TEXT_USED_AT, self.text_used)
        self.texts[value] = at
        return at

    def add(self, *fields: int) -> int:
        """Append a record (the fields of `RECORD` after the sequence number); returns its index."""
        index = self.count
        RECORD.pack_into(self.map, RECORDS_AT + (index % CAPACITY) * STRIDE, index & 0xFFFFFFFF, *fields)
        self.count = index + 1
        _Q.pack_into(self.map, COUNT_AT, self.count)
        return index

    def stamp(self, index: int, at: int, nanoseconds: int) -> None:
        """Fill in the wait (`WAIT_AT`) or end (`END_AT`) time of record `index`."""
        if self.count - index <= CAPACITY:
            _Q.pack_into(self.map, RECORDS_AT + (index % CAPACITY) * STRIDE + at, nanoseconds)

    def flag(self, index: int, bit: int) -> None:
        """Set a flag bit of record `index`."""
        at = RECORDS_AT + (index % CAPACITY) * STRIDE + 10
        struct.pack_into("<H", self.map, at, struct.unpack_from("<H", self.map, at)[0] | bit)

    def begin_wait(self, index: int, nanoseconds: int, threads: int) -> int:
        """The rank now waits for record `index`; returns what the header said before."""
        memory = self.map
        (before,) = _Q.unpack_from(memory, BLOCKED_AT)
        if self.count - index <= CAPACITY:
            _Q.pack_into(memory, RECORDS_AT + (index % CAPACITY) * STRIDE + WAIT_AT, nanoseconds)
        _Q.pack_into(memory, THREADS_AT, threads)
        _Q.pack_into(memory, BLOCKED_AT, index + 1)
        return before

    def end_wait(self, index: int, nanoseconds: int, before: int) -> None:
        """The wait for record `index` is over."""
        memory = self.map
        _Q.pack_into(memory, BLOCKED_AT, before)
        if self.count - index <= CAPACITY:
            _Q.pack_into(memory, RECORDS_AT + (index % CAPACITY) * STRIDE + END_AT, nanoseconds)

    def put(self, at: int, value: int) -> None:
        """Set a header field (`BLOCKED_AT`, `STATE_AT`, ...)."""
        _Q.pack_into(self.map, at, value)

    def get(self, at: int) -> int:
        return _Q.unpack_from(self.map, at)[0]


@dataclass(frozen=True)
class Record:
    """One operation as written: names are still numbers, see `events` for the readable form."""

    seq: int
    op: int
    dtype: int
    ndim: int
    reduce: int
    group: int
    flags: int
    peer: int
    tag: int
    line: str
    call: str
    extra: str
    name: str
    nbytes: int
    sent: int
    received: int
    numel: int
    start: int
    wait: int
    end: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """What the journal said at one moment: `records` in order (the last `CAPACITY`), and the header."""

    count: int
    blocked: int | None
    state: int
    state_time: int
    threads: int
    records: tuple[Record, ...]


class Reader:
    """The parent's end. Nothing a rank writes there can make reading fail other than by giving nonsense values."""

    def __init__(self, fd: int) -> None:
        self.map = mmap.mmap(fd, SIZE, prot=mmap.PROT_READ)
        self.cache: dict[int, Record] = {}
        self.texts: dict[int, str] = {}

    def get(self, at: int) -> int:
        return _Q.unpack_from(self.map, at)[0]

    def text(self, at: int) -> str:
        if at < 4 or at > TEXT_BYTES - 4:
            return ""
        if at not in self.texts:
            (size,) = struct.unpack_from("<I", self.map, TEXT_AT + at)
            size = min(size, TEXT_BYTES - at - 4, 4000)
            self.texts[at] = self.map[TEXT_AT + at + 4 : TEXT_AT + at + 4 + size].decode(errors="replace")
        return self.texts[at]

    def record(self, index: int) -> Record:
        done = self.cache.get(index)
        if done is not None:
            return done
        row = RECORD.unpack_from(self.map, RECORDS_AT + (index % CAPACITY) * STRIDE)
        _, op, dtype, ndim, reduce, group, flags, peer, tag, line, call, extra, name = row[:13]
        texts = (self.text(line), self.text(call), self.text(extra), self.text(name))
        made = Record(
            index,
            op,
            dtype,
            ndim,
            reduce,
            group,
            flags,
            peer,
            tag,
            *texts,
            *row[13:20],
            row[20 : 20 + min(ndim, 6)],
        )
        if made.end:
            self.cache[index] = made
        return made

    def blocked(self) -> int | None:
        at = self.get(BLOCKED_AT)
        return at - 1 if at else None

    def snapshot(self) -> Snapshot:
        count = self.get(COUNT_AT)
        records = tuple(self.record(i) for i in range(max(0, count - CAPACITY), count))
        state, when = self.get(STATE_AT), self.get(STATE_TIME_AT)
        return Snapshot(count, self.blocked(), state, when, self.get(THREADS_AT), records)

    def close(self) -> None:
        self.map.close()
