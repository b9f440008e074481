"""The table at the head of a GGUF file: named values, and where the tensors lie (the GGML project's format, version 3).

Read here in a tenth of a second, where `gguf.GGUFReader` takes five: it makes numpy arrays of each of the vocabulary's
98,000 strings. Tests hold one to the other. Left out: versions 1 and 2, big-endian files.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MAGIC, VERSION = b"GGUF", 3
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Place:
    """A tensor in the file. shape: [out, in] or [numbers], torch's order; kind: the number of its block type."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class Table:
    """What a GGUF file says: `values` by name, `tensors` by name, and `bytes_of` a tensor.

    ValueError where the file is none of this version.

    >>> table = Table(Path("model.gguf"))                 # doctest: +SKIP
    >>> table.values["llama.block_count"], table.tensors["output_norm.weight"].shape
    (30, (576,))
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        magic, version = self._map[:4], struct.unpack_from("<I", self._map, 4)[0] if len(self._map) > 24 else 0
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"{path.name} begins with {magic!r} and version {version}; GGUF version {VERSION} is read")
        self._at = 8
        tensors, values = self._numbers("Q", 2)
        self.values = {self._string(): self._value(self._numbers("I")[0]) for _ in range(values)}
        self.tensors = dict(self._place() for _ in range(tensors))
        alignment = self.values.get("general.alignment", 32)
        self._data = -(-self._at // alignment) * alignment

    def _numbers(self, kind: str, count: int = 1) -> tuple[Any, ...]:
        form = f"<{count}{kind}"
        found = struct.unpack_from(form, self._map, self._at)
        self._at += struct.calcsize(form)
        return found

    def _string(self) -> str:
        (length,) = self._numbers("Q")
        self._at += length
        return self._map[self._at - length : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._numbers(NUMBERS[kind])[0]
        inner, count = self._numbers("I")[0], self._numbers("Q")[0]
        if inner in NUMBERS:
            return list(self._numbers(NUMBERS[inner], count))
        return [self._value(inner) for _ in range(count)]

    def _place(self) -> tuple[str, Place]:
        name, dims = self._string(), self._numbers("I")[0]
        shape = self._numbers("Q", dims)[::-1]
        return name, Place(shape, self._numbers("I")[0], self._numbers("Q")[0])

    def bytes_of(self, name: str, count: int) -> np.ndarray:
        """`count` bytes from where a tensor begins, as a read-only view of the file."""
        return np.frombuffer(self._map, np.uint8, count, self._data + self.tensors[name].offset)
