"""Plain data on the wire: what a rank may return, written so that reading it runs no code of the sender.

A value becomes a JSON tree plus the raw bytes of its tensors, arrays and byte strings. Unlike pickle, reading it can
only build the types listed here: None, bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range,
slice, tensors, numpy arrays and scalars, torch.dtype, torch.Size, torch.device, dataclasses and named tuples of these.
Dataclasses are rebuilt without calling anything of theirs; where the reader does not know the class, as a `Record`.

Worked example: `decode(encode({"y": torch.arange(3.)}))` gives `{"y": tensor([0., 1., 2.])}`.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

MAX_DEPTH = 64
_LENGTH = struct.Struct("<Q")


class NotPlain(ValueError):
    """A value that cannot travel: `path` is where it sits in the result, `kind` its type."""

    def __init__(self, path: str, kind: str, why: str = "") -> None:
        super().__init__(f"{path} is a {kind}{why}")
        self.path, self.kind = path, kind


class Record(SimpleNamespace):
    """A dataclass or named tuple whose class the reader does not have: the same fields, none of the methods."""


def encode(value: Any) -> bytes:
    """Bytes of `value`: 8-byte length, a JSON tree of that length, then the blobs it points into.

    Raises NotPlain with the path of the first part that is not plain data, for example `result[0]['model']`.
    """
    blobs: list[bytes] = []
    tree = _Encoder(blobs).tree(value, "result", 0)
    head = json.dumps(tree, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *blobs])


def decode(data: bytes | memoryview, find_class: Callable[[str, str], type | None] | None = None) -> Any:
    """The value that `encode` wrote. `find_class(module, qualname)` may name a dataclass or named tuple to rebuild."""
    view = memoryview(data)
    (size,) = _LENGTH.unpack(view[:8])
    tree = json.loads(bytes(view[8 : 8 + size]))
    return _Decoder(view[8 + size :], find_class or (lambda module, name: None)).value(tree, 0)


class _Encoder:
    def __init__(self, blobs: list[bytes]) -> None:
        self.blobs, self.offset = blobs, 0

    def blob(self, data: bytes) -> list[int]:
        start, self.offset = self.offset, self.offset + len(data)
        self.blobs.append(data)
        return [start, len(data)]

    def tree(self, value: Any, path: str, depth: int) -> Any:
        """A JSON tree: scalars as they are, everything else as `{"t": kind, ...}`."""
        if value is None or value is True or value is False or type(value) is str:
            return value
        if type(value) is int:
            return value if abs(value) < 2**53 else {"t": "int", "v": str(value)}
        if type(value) is float:
            return {"t": "float", "v": value.hex()}
        if depth > MAX_DEPTH:
            raise NotPlain(path, type(value).__name__, f" nested deeper than {MAX_DEPTH} levels")
        return self.container(value, path, depth + 1)

    def items(self, values: Any, path: str, depth: int) -> list[Any]:
        return [self.tree(v, f"{path}[{i}]", depth) for i, v in enumerate(values)]

    def container(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            return {"t": kind.__name__, "v": self.items(value, path, depth)}
        if kind in (set, frozenset):
            return {"t": kind.__name__, "v": self.items(sorted(value, key=repr), path, depth)}
        if isinstance(value, dict):
            keys = [self.tree(k, f"{path}'s key {k!r}", depth) for k in value]
            return {
                "t": "dict",
                "k": keys,
                "v": [self.tree(v, f"{path}[{k!r}]", depth) for k, v in value.items()],
            }
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"t": "bytes", "b": self.blob(bytes(value))}
        if kind is complex:
            return {"t": "complex", "v": [value.real.hex(), value.imag.hex()]}
        if kind in (range, slice):
            return {"t": kind.__name__, "v": [value.start, value.stop, value.step]}
        if isinstance(value, Record):
            return self.record(
                "dataclass", kind, {n: self.tree(v, f"{path}.{n}", depth) for n, v in vars(value).items()}
            )
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                f.name: self.tree(getattr(value, f.name), f"{path}.{f.name}", depth) for f in dataclasses.fields(value)
            }
            return self.record("dataclass", kind, fields)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.record(
                "namedtuple",
                kind,
                {n: self.tree(v, f"{path}.{n}", depth) for n, v in zip(value._fields, value)},
            )
        return self.array(value, path)

    def record(self, tag: str, kind: type, fields: dict[str, Any]) -> dict[str, Any]:
        return {"t": tag, "c": [kind.__module__, kind.__qualname__], "v": fields}

    def array(self, value: Any, path: str) -> Any:
        import numpy as np
        import torch

        if isinstance(value, torch.Size):
            return {"t": "size", "v": list(value)}
        if isinstance(value, torch.dtype):
            return {"t": "dtype", "v": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"t": "device", "v": str(value)}
        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
            data = np.ascontiguousarray(value)
            tag = "ndarray" if isinstance(value, np.ndarray) else "npscalar"
            return {"t": tag, "d": value.dtype.str, "s": list(value.shape), "b": self.blob(data.tobytes())}
        if isinstance(value, (int, float, str)):  # subclasses: enum members, numpy-free scalars of a library
            return self.tree(
                int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else str(value),
                path,
                0,
            )
        raise NotPlain(path, type(value).__name__)

    def tensor(self, value: Any, path: str) -> dict[str, Any]:
        import torch

        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise NotPlain(path, f"{value.layout} tensor on {value.device}", "; only dense tensors travel")
        if hasattr(value, "full_tensor"):
            raise NotPlain(path, type(value).__name__, "; return its local part, `.to_local()`")
        flat = value.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1)
        if flat.stride() != (1,):  # one element keeps a stride of its own, and is contiguous all the same
            flat = flat.clone(memory_format=torch.contiguous_format)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        dtype = str(value.dtype).removeprefix("torch.")
        return {
            "t": "tensor",
            "d": dtype,
            "s": list(value.shape),
            "g": value.requires_grad,
            "b": self.blob(data),
        }


class _Decoder:
    def __init__(self, blobs: memoryview, find_class: Callable[[str, str], type | None]) -> None:
        self.blobs, self.find_class = blobs, find_class
        self.left = len(blobs)  # each byte of a message is somebody's once; a small one that repeats itself is hostile

    def blob(self, span: list[int]) -> bytearray:
        start, size = span
        if not (0 <= start and 0 <= size and start + size <= len(self.blobs)):
            raise ValueError(f"a blob of {size} bytes at {start} lies outside the message of {len(self.blobs)} bytes")
        self.left -= size
        if self.left < 0:
            raise ValueError("the message uses some of its bytes more than once")
        return bytearray(self.blobs[start : start + size])

    def value(self, tree: Any, depth: int) -> Any:
        if not isinstance(tree, Mapping):
            if tree is None or isinstance(tree, (bool, int, str)):
                return tree
            raise ValueError(f"a {type(tree).__name__} is not a value of the wire format")
        if depth > 2 * MAX_DEPTH:
            raise ValueError(f"values nested deeper than {2 * MAX_DEPTH} levels")
        build = getattr(self, f"build_{tree.get('t')}", None)
        if build is None:
            raise ValueError(f"unknown kind of value {tree.get('t')!r}")
        return build(tree, depth + 1)

    def parts(self, tree: Mapping[str, Any], depth: int) -> list[Any]:
        return [self.value(v, depth) for v in tree["v"]]

    def build_int(self, tree: Mapping[str, Any], depth: int) -> int:
        return int(tree["v"])

    def build_float(self, tree: Mapping[str, Any], depth: int) -> float:
        return float.fromhex(tree["v"])

    def build_complex(self, tree: Mapping[str, Any], depth: int) -> complex:
        return complex(*(float.fromhex(v) for v in tree["v"]))

    def build_list(self, tree: Mapping[str, Any], depth: int) -> list[Any]:
        return self.parts(tree, depth)

    def build_tuple(self, tree: Mapping[str, Any], depth: int) -> tuple[Any, ...]:
        return tuple(self.parts(tree, depth))

    def build_set(self, tree: Mapping[str, Any], depth: int) -> set[Any]:
        return set(self.parts(tree, depth))

    def build_frozenset(self, tree: Mapping[str, Any], depth: int) -> frozenset[Any]:
        return frozenset(self.parts(tree, depth))

    def build_dict(self, tree: Mapping[str, Any], depth: int) -> dict[Any, Any]:
        return dict(zip([self.value(k, depth) for k in tree["k"]], self.parts(tree, depth), strict=True))

    def build_bytes(self, tree: Mapping[str, Any], depth: int) -> bytes:
        return bytes(self.blob(tree["b"]))

    def build_range(self, tree: Mapping[str, Any], depth: int) -> range:
        return range(*(int(v) for v in tree["v"]))

    def build_slice(self, tree: Mapping[str, Any], depth: int) -> slice:
        return slice(*(None if v is None else int(v) for v in tree["v"]))

    def build_size(self, tree: Mapping[str, Any], depth: int) -> Any:
        import torch

        return torch.Size([int(v) for v in tree["v"]])

    def build_dtype(self, tree: Mapping[str, Any], depth: int) -> Any:
        return _dtype(tree["v"])

    def build_device(self, tree: Mapping[str, Any], depth: int) -> Any:
        import torch

        return torch.device(str(tree["v"]))

    def build_tensor(self, tree: Mapping[str, Any], depth: int) -> Any:
        import torch

        data, dtype, shape = self.blob(tree["b"]), _dtype(tree["d"]), [int(s) for s in tree["s"]]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        value = flat.reshape(shape)
        floats = dtype.is_floating_point or dtype.is_complex
        return value.requires_grad_() if tree.get("g") and floats else value

    def build_ndarray(self, tree: Mapping[str, Any], depth: int) -> Any:
        import numpy as np

        dtype = np.dtype(str(tree["d"]))
        if dtype.kind not in "biufc":
            raise ValueError(f"arrays of {dtype} do not travel")
        return np.frombuffer(self.blob(tree["b"]), dtype=dtype).reshape([int(s) for s in tree["s"]])

    def build_npscalar(self, tree: Mapping[str, Any], depth: int) -> Any:
        return self.build_ndarray(tree, depth)[()]

    def build_dataclass(self, tree: Mapping[str, Any], depth: int) -> Any:
        fields = {str(n): self.value(v, depth) for n, v in tree["v"].items()}
        kind = self.find_class(*map(str, tree["c"]))
        if kind is None or not dataclasses.is_dataclass(kind):
            return Record(**fields)
        made = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made

    def build_namedtuple(self, tree: Mapping[str, Any], depth: int) -> Any:
        fields = {str(n): self.value(v, depth) for n, v in tree["v"].items()}
        kind = self.find_class(*map(str, tree["c"]))
        if kind is None or getattr(kind, "_fields", None) != tuple(fields):
            return Record(**fields)
        return tuple.__new__(kind, fields.values())


def _dtype(name: Any) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {name!r}")
    return dtype
