"""An answering process that says what no honest one says: the grader goes on, and knows."""

from __future__ import annotations

import json
import struct

import pytest

from autograder.sandbox import Ended, Forged, replies
from autograder.sandbox import channel as channels
from autograder.verdict import AnswerLost
from tests.sandbox.conftest import ask, see
from utils.answering import protocol
from utils.ranks import plain, wire

# finds the channel among the process's own objects, as student code can
FIND = """
import gc, socket, struct, time
from utils.answering.serve import Link
from utils.ranks import plain, wire
link = next(o for o in gc.get_objects() if isinstance(o, Link))
def say(kind, body):
    link.sock.sendall(wire.HEAD.pack(len(body), kind) + body)
"""


def frame(kind: bytes, value: object) -> str:
    return f"say({kind!r}, {plain.encode(value)!r})"


def tree(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


DONE = {"request": 2, "status": "ok", "error": None, "changed": []}
ERROR = {"kind": "E", "text": "", "traceback": "", "line": 1, "shown": ""}

FORGED = {
    "another request": frame(protocol.DONE, DONE | {"request": 1}),
    "a request to come": frame(protocol.DONE, DONE | {"request": 3}),
    "no such status": frame(protocol.DONE, DONE | {"status": "passed"}),
    "a field more": frame(protocol.DONE, DONE | {"score": 5}),
    "changes that are a text": frame(protocol.DONE, DONE | {"changed": "none"}),
    "an error that is a number": frame(protocol.DONE, DONE | {"error": 5}),
    "a line that is text": frame(protocol.DONE, DONE | {"error": ERROR | {"line": "1"}}),
    "a text that is a list": frame(protocol.DONE, DONE | {"error": ERROR | {"text": ["x"]}}),
    "an answer to no probe": frame(protocol.ANSWER, {"request": 2}),
    "ready again": frame(protocol.READY, {"pid": 1}),
    "an unknown kind": frame(b"Z", {}),
    "not a dict": frame(protocol.DONE, [1, 2]),
    "html": frame(protocol.OUTPUT, {"kind": "display_data", "data": {"text/html": "<b>"}}),
    "a picture that is none": frame(protocol.OUTPUT, {"kind": "display_data", "data": {"image/png": "AAAA"}}),
    "an output of another kind": frame(protocol.OUTPUT, {"kind": "error", "data": {}}),
    "bytes that are no message": "say(b'D', b'\\xff' * 100)",
    "nothing in it": "say(b'D', b'')",
    "a tree that is cut": f"say(b'D', {tree('{' + chr(34))!r})",
    "nested without end": f"say(b'D', {tree('[' * 5000)!r} + b']')",
    "a deep tree": f"say(b'D', {tree(json.dumps({'t': 'list', 'v': []}))!r}.replace(b'[]', b'[' * 200 + b']' * 200))",
    "a number of a million digits": "say(b'D', (lambda t: struct.pack('<Q', len(t)) + t)(b'1' * 1000000))",
    "a blob outside": f"say(b'D', {tree(json.dumps({'t': 'bytes', 'b': [0, 10**12]}))!r})",
    "a negative blob": f"say(b'D', {tree(json.dumps({'t': 'bytes', 'b': [-5, 10]}))!r})",
    "a tensor of another size": f"say(b'D', {tree(json.dumps({'t': 'tensor', 'd': 'int8', 's': [9], 'b': [0, 0]}))!r})",
    "a tree of 40 MB": "t = b'[' + b'1,' * (20 << 20) + b'1]'\nsay(b'D', struct.pack('<Q', len(t)) + t)",
    "an object array": f"say(b'D', {tree(json.dumps({'t': 'ndarray', 'd': '|O', 's': [1], 'b': [0, 0]}))!r})",
    "a method's name": f"say(b'D', {tree(json.dumps({'t': '__class__'}))!r})",
    "a size above all": "link.sock.sendall(wire.HEAD.pack(1 << 60, b'D'))",
    "an output of megabytes": "say(b'O', b'x' * (9 << 20))",
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_frames_end_the_sandbox(opened, what) -> None:
    box, channel = opened()
    see(channel, FIND, "1")
    with pytest.raises(Forged, match="the process with the student's code sent") as caught:
        channel.cell(2, FORGED[what] + "\ntime.sleep(20)", 15)
    assert isinstance(caught.value, AnswerLost) and not channel.alive
    assert channel.cell(3, "1", 5).status == "died"
    box.close()


def test_values_cannot_be_larger_than_what_was_sent() -> None:
    body = plain.encode([b"x" * 1000, b"y" * 1000])
    assert replies.decode(body) == [b"x" * 1000, b"y" * 1000]
    with pytest.raises(ValueError, match="some of its bytes more than once"):
        replies.decode(body.replace(b"[1000,1000]", b"[   0,2000]"))


def test_half_a_frame_is_waited_for_no_longer_than_the_cell_may_take(opened, monkeypatch) -> None:
    monkeypatch.setattr(channels, "INTERRUPT_S", 0.2)
    _, channel = opened()
    see(channel, FIND, "1")
    run = channel.cell(2, "link.sock.sendall(wire.HEAD.pack(1000, b'D') + b'x')\ntime.sleep(20)", 0.5)
    assert run.status == "stopped" or not channel.alive


def test_channel_that_is_closed_ends_the_cell(opened) -> None:
    _, channel = opened()
    see(channel, FIND, "1")
    run = channel.cell(2, "link.sock.shutdown(socket.SHUT_RDWR)\ntime.sleep(20)", 15)
    assert run.status == "died" and run.seconds < 5 and not channel.alive


def test_process_that_does_not_read_cannot_hold_the_grader(opened, monkeypatch) -> None:
    monkeypatch.setattr(channels, "INTERRUPT_S", 0.2)
    _, channel = opened()
    see(channel, FIND, "1")
    see(channel, "import signal, threading\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])", "1")
    channel.cell(2, "import types\nwire.receive = lambda sock: time.sleep(1000)", 1)
    with pytest.raises(Ended):
        channel.probe(b"x" * (4 << 20), {"ranks": None}, 0.5)
    assert wire.receive is not None and not channel.alive


def test_forged_answer_of_a_probe_is_only_data(opened) -> None:
    """An answer in the right form is believed in its form alone; what it means, the verdict's side decides."""
    _, channel = opened()
    code = "import utils.answering.serve as s\ns.probe = lambda fields, names: {'values': [1, 1], 'odd': True}"
    see(channel, code, "1")
    assert ask(channel, lambda: 0) == {"values": [1, 1], "odd": True}


def test_pickled_bytes_from_the_sandbox_stay_bytes(opened, tmp_path) -> None:
    mark = tmp_path / "ran"
    code = f"""
import pickle, os
class Trap:
    def __reduce__(self):
        return os.system, ("touch {mark}",)
def trap():
    return pickle.dumps(Trap())
"""
    _, channel = opened()
    see(channel, code, "1")
    (value,) = ask(channel, lambda: trap(), ranks=None)["values"]  # noqa: F821
    assert type(value) is bytes and not mark.exists()
    told = ask(channel, lambda: Trap(), ranks=None)  # noqa: F821
    assert told["error"] == "BadLaunch" and not mark.exists()
