"""Messages between the kernel and its ranks: an 8-byte length, one byte of kind, then the body."""

from __future__ import annotations

import socket
import struct

HEAD = struct.Struct("<Qc")
JOB, VALUE, ERROR, ASK, ANSWER = (bytes([c]) for c in b"JVEAK")


def send(sock: socket.socket, kind: bytes, body: bytes = b"") -> None:
    """Send one message; blocks until the kernel took all of it."""
    sock.sendall(HEAD.pack(len(body), kind) + body)


def receive(sock: socket.socket) -> tuple[bytes, bytes] | None:
    """The next message as (kind, body); None when the other side is gone."""
    head = _exactly(sock, HEAD.size)
    if head is None:
        return None
    size, kind = HEAD.unpack(head)
    body = _exactly(sock, size)
    return None if body is None else (kind, body)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        try:
            n = sock.recv_into(view[got:])
        except ConnectionError:
            return None
        if n == 0:
            return None
        got += n
    return bytes(data)


class Inbox:
    """Collects messages from a socket that is read as data arrives, at most `limit` bytes a message."""

    def __init__(self, limit: int = 1 << 33) -> None:
        self.data, self.limit = bytearray(), limit

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Add what arrived; returns the messages that are now whole."""
        self.data += data
        done = []
        while len(self.data) >= HEAD.size:
            size, kind = HEAD.unpack_from(self.data)
            if size > self.limit:
                raise ValueError(f"a message of {size} bytes is over the limit of {self.limit}")
            if len(self.data) < HEAD.size + size:
                break
            done.append((kind, bytes(self.data[HEAD.size : HEAD.size + size])))
            del self.data[: HEAD.size + size]
        return done
