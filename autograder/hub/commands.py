"""`python -m autograder hub COMMAND`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add `hub` and its commands to the command line's grammar."""
    hub = commands.add_parser("hub", help="a JupyterHub for a class: init, doctor, run, enrol")
    inner = hub.add_subparsers(dest="hub_command", required=True)

    one = inner.add_parser("init", help="make or refresh a class's folder from its YAML file")
    one.add_argument("class_file", type=Path, metavar="CLASS.yaml")
    one.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    one.set_defaults(run=_init)

    for name, run, about in (
        ("doctor", _doctor, "check a class's folder and this machine"),
        ("run", _run, "run the hub until it is stopped"),
    ):
        one = inner.add_parser(name, help=about)
        one.add_argument("folder", type=Path)
        one.set_defaults(run=run)

    one = inner.add_parser("enrol", help="enrol people: login, group, gradebook, folders; or take them out")
    one.add_argument("folder", type=Path)
    one.add_argument("name", nargs="*", help="user names")
    one.add_argument("--csv", type=Path, metavar="FILE", help="students: columns name,first,last,email")
    one.add_argument("--role", choices=("student", "instructor"), help="of those named; student if new")
    one.add_argument("--remove", action="store_true", help="take them out; files and marks stay")
    one.add_argument("--new-password", action="store_true", help="for people enrolled: it ends their logins too")
    for field in ("first", "last", "email"):
        one.add_argument(f"--{field}", default="")
    one.set_defaults(run=_enrol)

    one = inner.add_parser("backup", help="the whole class in one new private file, while it goes on")
    one.add_argument("folder", type=Path)
    one.add_argument("file", type=Path)
    one.set_defaults(run=_backup)

    one = inner.add_parser("restore", help="a class's folder from such a file, here or elsewhere")
    one.add_argument("file", type=Path)
    one.add_argument("folder", type=Path, help="a new one")
    one.set_defaults(run=_restore)


def _backup(args: argparse.Namespace) -> int:
    from autograder.hub.backup import backup
    from autograder.hub.layout import Layout

    kept = backup(Layout.of(args.folder), args.file)
    print(f"{args.file}: {kept.files} files of {kept.bytes / 2**20:.0f} MiB.")
    print("It holds marks, hand-ins, hashed passwords and tokens: keep it as safe as the class.")
    if kept.left:
        print(f"Left out, since they are no plain files: {', '.join(kept.left)}.")
    return 0


def _restore(args: argparse.Namespace) -> int:
    from autograder.hub.backup import SERVER_COPY, restore
    from autograder.hub.people import active

    layout = restore(args.file, args.folder)
    print(f"The class {layout.spec.course} with {len(active(layout))} people is in {layout.folder}.")
    if (layout.folder / SERVER_COPY).is_file():
        print(f"Its gradebook was on a server, and is {layout.folder / SERVER_COPY} here: if the server lost it, "
              "`python -m autograder gradebook copy` it into an empty database.")  # fmt: skip
    print(f"Next: python -m autograder hub doctor {args.folder}; python -m autograder hub run {args.folder}")
    return 0


def _init(args: argparse.Namespace) -> int:
    from autograder.hub.init import init

    layout, given = init(args.class_file, args.into)
    print(f"The class {layout.spec.course} is in {layout.folder}.")
    _tell(given)
    print(f"Next: python -m autograder hub doctor {args.into}; python -m autograder hub run {args.into}")
    return 0


def _tell(given: dict[str, str]) -> None:
    """Print new passwords; they are kept nowhere."""
    for name, password in given.items():
        print(f"    {name:<20} {password}")
    if given:
        print("Hand these out now: they are kept hashed, and `enrol NAME --new-password` gives others.", flush=True)


def _doctor(args: argparse.Namespace) -> int:
    from autograder.hub.doctor import doctor
    from autograder.hub.layout import Layout

    return doctor(Layout.of(args.folder))


def _run(args: argparse.Namespace) -> int:
    from autograder.hub.layout import Layout
    from autograder.hub.run import Runner

    layout = Layout.of(args.folder)
    print(f"Starting the hub of {layout.spec.course} (half a minute); its log is {layout.log}.", flush=True)
    with Runner(layout) as runner:
        print(f"It runs at {layout.spec.address.url}; Ctrl-C stops it.", flush=True)
        code = runner.watch()
        print("Stopping: servers first, then the hub.", flush=True)
    print("Stopped; nothing of it is left.", flush=True)
    return code


def _enrol(args: argparse.Namespace) -> int:
    from autograder.course import UserError
    from autograder.hub.classfile import read_roster
    from autograder.hub.enrol import asked, enrol, leave, renew
    from autograder.hub.layout import Layout

    layout = Layout.of(args.folder)
    roster = read_roster(args.csv) if args.csv else []
    names = [person.name for person in roster] + args.name
    if not names:
        raise UserError("Nobody was named: give user names, or --csv FILE.")
    if args.remove:
        done, told = "Taken out", leave(layout, names)
    elif args.new_password:
        done, told = "New password for", renew(layout, names, _tell)
    else:
        about = {"first": args.first, "last": args.last, "email": args.email}
        done, told = "Enrolled", enrol(layout, asked(layout, args.name, args.role, about, roster), _tell)
    print(f"{done}: {', '.join(names)}.")
    print("The running hub knows." if told else "No hub runs; it will know when it starts.")
    return 0
