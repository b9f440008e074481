"""Where the untrusted half of grading runs: `open_sandbox` gives a sandbox, its `start` a channel to cells and probes.

    with open_sandbox("bubblewrap", folder) as sandbox:
        channel = sandbox.start()
        channel.cell(1, "x = 6 * 7", limit_s=30).status                              # 'ok'
        payload = pack(lambda: x, (), {})[0]                                         # utils.ranks.ship.pack
        channel.probe(payload, {"ranks": None}, limit_s=30)["values"]                # [42]

A process that ended is replaced by a new sandbox, in which the cells before are run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .base import Ended, Forged, Limits, Sandbox, SandboxRefused, Usage
from .channel import Channel

KINDS = ("bubblewrap", "container", "none", "pod")

__all__ = [
    "KINDS", "Channel", "Ended", "Forged", "Limits", "Sandbox", "SandboxRefused", "Usage", "open_sandbox", "why_not",
]  # fmt: skip


def why_not(kind: str) -> str:
    """ "" where a sandbox of this kind can be had here, else one sentence with the reason and what to do."""
    if kind == "bubblewrap":
        from .probing import why_not_bubblewrap

        return why_not_bubblewrap()
    try:
        if kind == "container":
            from .container import find_engine

            find_engine(None)
        elif kind == "pod":
            from .job import Place
            from .pod import ready

            place = Place.from_environment()
            ready(place.kubectl, place.context, place.namespace)
    except SandboxRefused as error:
        return str(error)
    return "" if kind in KINDS else f'there is no sandbox "{kind}": choose {", ".join(KINDS)}.'


def open_sandbox(
    kind: str, folder: Path | None = None, limits: Limits | None = None, hidden: Iterable[str] = ()
) -> Sandbox:
    """A sandbox for one answering process, not yet started; close it, or use it as a context manager.

    kind: bubblewrap, container, pod (of a Kubernetes cluster), or none, which has to be asked for by name and isolates
        nothing.
    folder: the submission's files, copied in before the first cell.
    hidden: paths under the project that answer a lab, such as "utils/engine"; not shown inside (`none` cannot).

    Raises: SandboxRefused in one sentence with what to do.
    """
    reason, limits = why_not(kind), limits or Limits()
    if reason:
        raise SandboxRefused(reason)
    if kind == "bubblewrap":
        from .bubble import Bubble

        return Bubble(folder, limits, hidden)
    if kind == "container":
        from .container import Container

        return Container(folder, limits, hidden)
    if kind == "pod":
        from .pod import Pod

        return Pod(folder, limits, hidden)
    from .bare import Bare

    return Bare(folder, limits)
