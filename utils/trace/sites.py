"""Which line of whose code issued an operation: the innermost frame that is neither torch's, the library's nor ours."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

_OURS = str(Path(__file__).resolve().parent.parent)
_PATHS = sysconfig.get_paths()
_PUBLIC_FILE = "distributed_c10d.py"
_kinds: dict[CodeType, str | None] = {}


def is_user_file(filename: str) -> bool:
    """True for a cell, a script or a student's module; False for torch, installed packages, Python itself and utils."""
    if filename.startswith(("<frozen", _OURS)):
        return False
    if "site-packages" in filename or "dist-packages" in filename:
        return False
    return not filename.startswith((_PATHS["stdlib"], _PATHS["platstdlib"]))


def _kind(code: CodeType) -> str | None:
    """None for a frame of the user, the name of a public function of torch.distributed, or "" for anything else."""
    if is_user_file(code.co_filename):
        return None
    public = code.co_filename.endswith(_PUBLIC_FILE) and not code.co_name.startswith("_")
    return code.co_name if public else ""


def find(depth: int = 2) -> tuple[str, FrameType | None]:
    """The public torch.distributed call the user made ("isend", "" if none), and the user's frame."""
    frame: FrameType | None = sys._getframe(depth)
    call = ""
    while frame is not None:
        code = frame.f_code
        try:
            kind = _kinds[code]
        except KeyError:
            kind = _kinds[code] = _kind(code)
        if kind is None:
            return call, frame
        if kind:
            call = kind
        frame = frame.f_back
    return call, None


def names_of(value: object, frame: FrameType | None) -> str:
    """The variables of `frame` that hold `value`: what the student calls this tensor."""
    if frame is None:
        return ""
    return ",".join([name for name, held in frame.f_locals.items() if held is value])
