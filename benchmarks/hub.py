"""A class at work on a hub of this machine, which is killed in the middle: prints one JSON object.

    python benchmarks/hub.py [--students 30] [--spread 120] [--kill-at 0.5 | --no-kill] [--seed 0]

Simulated students ask over real HTTP what a browser asks: they log in, get a server, pull the lectures, fetch lab 01,
put an answer in (most right, some wrong, some blank), validate, save and submit. One hands in twice, one submits while
the hub is down. Then all is collected and graded by `autograder grade`, and every hand-in is looked up:
    students, submitted                 those who came, those who handed in
    lost, doubled, misgraded            students whose last hand-in was not collected as it was handed in, or more than
                                        once, or got other points than it is worth; sentences on stderr say which
    killed, back_s                      whether the hub was killed, and seconds until it was back
    refused_while_down                  students who pressed Submit in vain while it was down
    turned_away                         times that a login was told to come again, since many servers were starting
    restarted                           students whose server did not outlive the hub
    server_s, fetch_s, validate_s, submit_s    seconds a student waited, the median; server_p95_s ...: one in 20 longer
    mib_per_student                     memory of a student's server without a kernel (PSS, the median)
    work_s, grade_s, took_s             seconds from the first arrival to the last hand-in; to grade; of the whole run
    cores                               of this machine
It ends with 1 when a hand-in was lost, doubled or misgraded. Needs .venv-hub: `make .venv-hub/.installed`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
HUB_PYTHON = REPO / ".venv-hub" / "bin" / "python"
MOST = 200


def arguments() -> argparse.Namespace:
    """Read the command line; what cannot be is refused in a sentence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--students", type=int, default=30, metavar="N", help=f"3 to {MOST} (default 30)")
    parser.add_argument("--spread", type=float, default=120.0, metavar="SECONDS", help="within which they come")
    parser.add_argument("--seed", type=int, default=0, help="of the plan of who comes when with what")
    kill = parser.add_mutually_exclusive_group()
    kill.add_argument("--kill-at", type=float, default=0.5, metavar="SHARE", help="of students who have submitted")
    kill.add_argument("--no-kill", action="store_true", help="leave the hub alone")
    given = parser.parse_args()
    if not 3 <= given.students <= MOST:
        parser.error(f"--students is {given.students}: give 3 to {MOST}.")
    if not 0 <= given.spread <= 3600:
        parser.error(f"--spread is {given.spread:g}: give 0 to 3600 seconds.")
    if not 0 <= given.kill_at < 1:
        parser.error(f"--kill-at is {given.kill_at:g}: give a share from 0 to below 1, such as 0.5.")
    return given


def with_hub() -> None:
    """Go on with .venv-hub's Python where this one has no JupyterHub: servers have to be run by others than us."""
    if find_spec("jupyterhub"):
        sys.path[0] = str(REPO)  # in the place of this folder, whose trace.py is not the standard library's
    elif HUB_PYTHON.exists():
        os.execv(HUB_PYTHON, [str(HUB_PYTHON), *sys.argv])
    else:
        sys.exit("There is no .venv-hub here, which has JupyterHub: `make .venv-hub/.installed` makes it.")


def room_for(students: int) -> str:
    """What is missing on this machine for so many students; "" where it will do."""
    import psutil

    from autograder.doctor import Sick
    from autograder.hub.doctor import SERVER_MIB, programs

    try:
        programs()
    except Sick as lacks:
        return str(lacks)
    free = psutil.virtual_memory().available / 2**20
    if students * SERVER_MIB > free:
        return (
            f"{students} servers and kernels of about {SERVER_MIB} MiB need more than the {free:.0f} MiB free here: "
            f"give --students {int(free // SERVER_MIB)} or fewer."
        )
    return ""


def interrupted(*_: object) -> None:
    """Stop once: whoever asks again meanwhile must not keep the hub and its servers from being ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print("Stopping: servers and the hub end first (up to a minute).", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


def main() -> int:
    """Run a class and print its figures."""
    given, started = arguments(), time.monotonic()
    with_hub()
    if problem := room_for(given.students):
        sys.exit(problem)
    from autograder.course import UserError
    from benchmarks.hub_load.klass import LoadClass
    from benchmarks.hub_load.load import Asked, Load, tell
    from benchmarks.hub_load.plan import plan

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    asked = Asked(given.students, given.spread, None if given.no_kill else given.kill_at, given.seed)
    plans = plan(asked.students, asked.spread_s, asked.seed, kill=asked.kill_at is not None)
    try:
        klass = LoadClass([one.name for one in plans])
        tell(f"Making a class in {klass.root} and starting its hub (half a minute).")
        with klass:
            load = Load(klass, plans, asked)
            load.run()
            figures = load.figures()
    except KeyboardInterrupt:
        sys.exit("Stopped; nothing of it is left.")
    except (AssertionError, UserError) as error:
        sys.exit(f"The class could not be run: {error}")
    print(json.dumps(figures | {"took_s": round(time.monotonic() - started, 1)}))
    return int(bool(figures["lost"] or figures["doubled"] or figures["misgraded"]))


if __name__ == "__main__":
    sys.exit(main())
