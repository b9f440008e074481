"""Checks of what an answering process says: each field's type and range, before anything is made of it.

What a probe brought back is checked where it is read as a run, by the verdict's side."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from utils.answering import protocol
from utils.ranks import plain

MOST_CHARS = 1 << 20
MOST_CHANGED = 50
MOST_TREE = 32 << 20  # bytes of JSON in a reply
_PNG = b"\x89PNG\r\n\x1a\n"


class NotAReply(ValueError):
    """A reply that no honest process sends; the text says what is wrong with it."""


def decode(body: bytes) -> Any:
    """The value of a frame's body. Raises whatever decoding raises, for which only the sender is to blame."""
    view = memoryview(body)
    (size,) = plain._LENGTH.unpack(view[:8])
    _need(size <= MOST_TREE, f"a reply of {size} bytes besides its arrays")
    return plain._Decoder(view[8 + size :], lambda module, name: None).value(json.loads(bytes(view[8 : 8 + size])), 0)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise NotAReply(what)


def _text(value: Any, what: str) -> str:
    _need(type(value) is str and len(value) <= MOST_CHARS, f"a {what} that is not a short text")
    return value


def _fields(value: Any, names: set[str], what: str) -> dict[str, Any]:
    _need(type(value) is dict and set(value) == names, f"{what} with other fields than it has")
    return value


def _reply(value: Any, request: int, what: str) -> dict[str, Any]:
    _need(type(value) is dict and value.pop("request", None) == request, f"{what} to a request that was not made")
    return value


def ready(value: Any, request: int) -> dict[str, Any]:
    return _fields(value, {"pid"}, "a start")


def failed(value: Any, request: int) -> dict[str, Any]:
    _text(_fields(value, {"text"}, "a failure")["text"], "reason")
    return value


def done(value: Any, request: int) -> dict[str, Any]:
    """The end of a cell."""
    value = _fields(_reply(value, request, "the end of a cell"), {"status", "error", "changed"}, "the end of a cell")
    _need(value["status"] in ("ok", "error", "exited"), "a status that no cell has")
    names = value["changed"]
    _need(type(names) is list and len(names) <= MOST_CHANGED, "a list of changes that is none")
    _need(all(type(name) is str and len(name) <= 200 for name in names), "a change that is not a short text")
    if value["error"] is not None:
        error = _fields(value["error"], {"kind", "text", "traceback", "line", "shown"}, "an error")
        for name in ("kind", "text", "traceback", "shown"):
            _text(error[name], name)
        _need(error["line"] is None or (type(error["line"]) is int and error["line"] > 0), "a line that no cell has")
    _need((value["status"] == "error") <= (value["error"] is not None), "an error without a kind")
    return value


def shown(value: Any) -> dict[str, Any]:
    """Something that a cell showed: text, or a picture that is one."""
    value = _fields(value, {"kind", "data"}, "an output")
    _need(value["kind"] in ("display_data", "execute_result", "clear"), "an unknown kind of output")
    data = value["data"]
    _need(type(data) is dict and set(data) <= set(protocol.MIME_TYPES), "an output of another type than text and PNG")
    _need(all(type(v) is str for v in data.values()), "an output that is not text")
    if "image/png" in data:
        try:
            _need(base64.b64decode(data["image/png"]).startswith(_PNG), "a picture that is none")
        except binascii.Error:
            raise NotAReply("a picture that is none") from None
    return value


def answer(value: Any, request: int) -> dict[str, Any]:
    return _reply(value, request, "an answer")


CHECKS = {protocol.READY: ready, protocol.FAILED: failed, protocol.DONE: done, protocol.ANSWER: answer}
