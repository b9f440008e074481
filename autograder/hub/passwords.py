"""Logging in with a password each, for a class without a login service of its own: kept hashed, by scrypt (RFC 7914).

A wrong guess costs the time of one scrypt (tens of milliseconds and 16 MiB); there is no reset by e-mail, an admin
gives a new one with `enrol`. A class that has OAuth or LTI should use that: deploy/README.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

WORK = {"n": 2**14, "r": 8, "p": 1}
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is read for another


def new_password() -> str:
    """Three groups of four letters: 59 bits.

    >>> len(new_password())
    14
    """
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(3))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at no moment open to others."""
    part = path.with_suffix(path.suffix + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


class Passwords:
    """The file of hashed passwords, {name: {salt, hash}}."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _all(self) -> dict[str, dict[str, str]]:
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def __contains__(self, name: str) -> bool:
        return name in self._all()

    def give(self, name: str) -> str:
        """Set and return a new password."""
        password, salt = new_password(), secrets.token_bytes(16)
        record = {"salt": salt.hex(), "hash": _hash(password, salt)}
        write_private(self.path, json.dumps(self._all() | {name: record}, indent=1) + "\n")
        return password

    def right(self, name: str, password: str) -> bool:
        """Whether this is the name's password; takes the same time for a name that nobody has."""
        record = self._all().get(name) or {"salt": "00" * 16, "hash": ""}
        return hmac.compare_digest(_hash(password, bytes.fromhex(record["salt"])), record["hash"])


def _hash(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, **WORK).hex()
