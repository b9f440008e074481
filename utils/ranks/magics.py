"""`%%ranks 4`: run a cell's body on several ranks, its output grouped by rank."""

from __future__ import annotations

import argparse
import linecache
from typing import Any

from .api import launch, warm_up
from .errors import BadLaunch
from .options import DEFAULT_TIMEOUT


def load() -> None:
    """Add the magic to the running notebook and start the fork server in the background."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    shell.register_magic_function(ranks_magic, "cell", "ranks")
    warm_up()


def _parse(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="%%ranks", add_help=False, exit_on_error=False)
    parser.add_argument("ranks", type=int, nargs="?", default=2)
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    try:
        return parser.parse_args(line.split())
    except (argparse.ArgumentError, SystemExit):
        raise BadLaunch(f"%%ranks {line}: write a number of ranks, for example `%%ranks 4 --timeout 20`.") from None


def ranks_magic(line: str, cell: str) -> None:
    """%%ranks N [--timeout S] [--backend B] [--device D] [--seed K]: run this cell's body on N ranks.

    The body sees the notebook's functions and variables that it names (as copies), `dist`, `torch`, `rank` and
    `world_size`. What it assigns stays on the ranks; to get values back use `launch`.
    """
    from IPython import get_ipython

    shell = get_ipython()
    options = _parse(line)
    name = shell.compile.cache("\n" + cell, shell.execution_count)  # the magic's own line is line 1 of the cell
    linecache.cache[name] = (len(cell) + 1, None, ["\n", *(text + "\n" for text in cell.split("\n"))], name)
    try:
        code = compile("\n" + cell, name, "exec")
    except SyntaxError as error:
        raise BadLaunch(f"{error.msg} in line {error.lineno} of this cell.") from None
    body = _body(code, shell.user_ns)
    launch(
        body, ranks=options.ranks, timeout=options.timeout, backend=options.backend, device=options.device,
        seed=options.seed, show="grouped",
    )  # fmt: skip


def _body(code: Any, namespace: dict[str, Any]) -> Any:
    """A function that runs the cell's code, carrying the notebook's variables that the code names."""
    from .ship import names_in

    wanted = {n: namespace[n] for n in sorted(names_in(code)) if n in namespace and not n.startswith("_")}

    def cell() -> None:
        import torch
        import torch.distributed as dist

        place = {
            "torch": torch,
            "dist": dist,
            "rank": dist.get_rank(),
            "world_size": dist.get_world_size(),
            "__name__": "__main__",
        }
        exec(code, place | wanted)

    return cell
