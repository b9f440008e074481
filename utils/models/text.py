"""Real text that is on every machine: the source code of CPython's own standard library, as bytes.

A byte is a token, so the vocabulary has 256. The text differs a little between Python versions; on one machine it is
always the same, and a seed always draws the same batches from it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

IGNORED = -100  # a target that does not count, torch's ignore_index


@cache
def _library() -> bytes:
    """The top-level modules of the standard library, in the order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    # a link is a site's own (Debian's sitecustomize.py), and may lead nowhere where only the library is to be seen
    text = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py")) if not path.is_symlink())
    if len(text) < 2**20:
        raise FileNotFoundError(f"{folder} holds {len(text)} bytes of Python source; megabytes were expected")
    return text


def stdlib_bytes(count: int) -> torch.Tensor:
    """The first `count` bytes of the standard library's source, as int64 token numbers [count].

    Raises ValueError where there are fewer (there are about 4 MB).

    >>> bytes(stdlib_bytes(20).tolist()).decode().splitlines()[0].isascii()
    True
    """
    text = _library()
    if not 0 <= count <= len(text):
        raise ValueError(f"{count} bytes of text were asked for; the standard library has {len(text)}")
    return torch.frombuffer(bytearray(text[:count]), dtype=torch.uint8).long() if count else torch.empty(0).long()


def batches(
    batch_size: int, seq_len: int, steps: int, seed: int = 0, text_bytes: int = 2**20
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """`steps` batches of text drawn at random places: tokens [B,S] and targets [B,S], the tokens one place on.

    The first `text_bytes` bytes of the library are drawn from. The same seed gives the same batches everywhere.

    >>> tokens, targets = next(batches(2, 8, steps=1))
    >>> bool((tokens[:, 1:] == targets[:, :-1]).all())
    True
    """
    text = stdlib_bytes(text_bytes)
    if seq_len + 1 > text_bytes:
        raise ValueError(f"seq_len = {seq_len} needs {seq_len + 1} bytes of text; text_bytes = {text_bytes}")
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(text_bytes - seq_len, (batch_size, 1), generator=generator)
        window = text[starts + torch.arange(seq_len + 1)]
        yield window[:, :-1].contiguous(), window[:, 1:].contiguous()
