"""The wire format of values: what it refuses, and that reading hostile bytes builds nothing but plain data."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from utils.ranks import plain, wire

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_what_goes_in_comes_out(value: object) -> None:
    assert plain.decode(plain.encode(value)) == value


def test_a_single_element_of_a_strided_view_travels() -> None:
    view = torch.arange(6.0).reshape(3, 2)[:1, 1]
    assert view.stride() == (2,) and plain.decode(plain.encode({"x": view}))["x"].tolist() == [1.0]


def test_tensors_of_every_dtype_travel_bit_for_bit() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64):
        tensor = (torch.arange(6) - 2).to(dtype).view(2, 3)
        back = plain.decode(plain.encode(tensor))
        assert back.dtype == dtype and torch.equal(back, tensor)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "result is a object"),
        ([1, {"f": print}], "result[1]['f'] is a builtin_function_or_method"),
        ({object(): 1}, "key"),
        (torch.nn.Linear(1, 1), "result is a Linear"),
    ],
)
def test_what_is_not_plain_is_named_by_path(value: object, path: str) -> None:
    with pytest.raises(plain.NotPlain) as caught:
        plain.encode(value)
    assert path in str(caught.value)


def test_a_list_inside_itself_is_refused() -> None:
    loop: list = []
    loop.append(loop)
    with pytest.raises(plain.NotPlain, match="nested deeper"):
        plain.encode(loop)


def forged(tree: object, blobs: bytes = b"") -> bytes:
    head = json.dumps(tree).encode()
    return struct.pack("<Q", len(head)) + head + blobs


@pytest.mark.parametrize(
    "tree",
    [
        {"t": "bytes", "b": [0, 100]},
        {"t": "bytes", "b": [-4, 2]},
        {"t": "list", "v": [{"t": "bytes", "b": [0, 8]}] * 2},
        {"t": "tensor", "d": "load", "s": [1], "b": [0, 0]},
        {"t": "ndarray", "d": "|O", "s": [1], "b": [0, 8]},
        {"t": "tensor", "d": "float32", "s": [1000000], "b": [0, 4]},
        {"t": "__class__", "v": []},
        {"t": "value", "v": 1},
        {"t": None},
        1.5,
        [1, 2],
    ],
)
def test_forged_trees_are_refused(tree: object) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError, KeyError)):
        plain.decode(forged(tree, b"\0" * 8))


def test_a_named_class_is_rebuilt_only_when_the_reader_offers_it() -> None:
    tree = {"t": "dataclass", "c": ["os", "system"], "v": {"command": "touch /tmp/owned"}}
    made = plain.decode(forged(tree))
    assert isinstance(made, plain.Record) and made.command == "touch /tmp/owned"
    asked = []
    plain.decode(forged(tree), lambda module, name: asked.append((module, name)))
    assert asked == [("os", "system")]


def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    inbox = wire.Inbox(limit=100)
    assert inbox.feed(wire.HEAD.pack(3, b"V") + b"ab") == [] and inbox.feed(b"c") == [(b"V", b"abc")]
    with pytest.raises(ValueError, match="over the limit"):
        inbox.feed(wire.HEAD.pack(101, b"V"))
