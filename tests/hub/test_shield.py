"""What a person's server sees of the machine: their own, read-only tools, and nothing of anybody else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest
import yaml

from autograder.course import REPO
from autograder.hub import people, shield
from autograder.hub.classfile import Person
from autograder.hub.layout import Layout
from autograder.hub.settings import write_settings
from autograder.sandbox import why_not

pytestmark = pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why")

LOOK = """
import json, os, sys
def tried(what):
    try:
        what()
        return "done"
    except OSError as error:
        return type(error).__name__
own = "/srv/exchange/llm"
assert os.access("/srv/exchange", os.W_OK)  # or nbgrader lists nothing
print(json.dumps({
    "seen": [path for path in sys.argv[1:] if os.path.exists(path)],
    "home": sorted(os.listdir(os.path.expanduser("~"))), "inbound": os.listdir(own + "/inbound"),
    "write": [tried(lambda path=path: open(path + "/x", "w")) for path in
              (own + "/inbound", own + "/outbound", own + "/feedback", "/srv/course", "/srv/settings", "/usr", "/etc")],
    "processes": sum(name.isdigit() for name in os.listdir("/proc")), "uid": os.getuid(),
    "name": __import__("pwd").getpwuid(os.getuid()).pw_name, "token": "SECRET_OF_THE_HUB" in os.environ,
}))
"""


@pytest.fixture(params=["one", "auto"])
def layout(request: pytest.FixtureRequest) -> Iterator[Layout]:
    """A class of two without its hub; pytest's own folders are closed to other users."""
    root = Path(mkdtemp(prefix="shield-", dir="/tmp"))
    root.chmod(0o755)
    (root / "class.yaml").write_text(yaml.safe_dump({"course": "llm", "users": request.param}))
    layout = Layout.of(root)
    for path in (layout.student, layout.lectures, layout.outbound, layout.secrets, layout.data):
        path.mkdir(parents=True)
    for person in people.add(layout, [Person("ada"), Person("bo")]):
        people.places(layout, person)
        (layout.home(person.name) / f"of_{person.name}").write_text("")
        (layout.inbound(person.name) / f"{person.name}+lab01").write_text("")
    (layout.secrets / "enrol_token").write_text("secret-token")
    (layout.data / "gradebook.db").write_text("marks")
    write_settings(layout)
    shield.write_names(layout)
    yield layout
    rmtree(root)


def look(layout: Layout, name: str) -> dict:
    person = people.active(layout)[name]
    hidden = [
        layout.folder, layout.home("bo"), layout.inbound("bo"), layout.feedback("bo"), layout.secrets / "enrol_token",
        layout.data / "gradebook.db", layout.people, REPO / "solutions", REPO / "tests", Path("/etc/shadow"),
    ]  # fmt: skip
    assert [path for path in hidden if not path.exists()] == []  # or not seeing them would mean nothing
    argv = [*shield.command(layout, person), "/usr/bin/python3", "-c", LOOK, *map(str, hidden)]
    env = shield.environment(layout, person)
    done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=60,
                          **layout.run_as(person.uid))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_server_sees_its_owner_and_nobody_else(layout: Layout) -> None:
    found = look(layout, "ada")
    assert found["seen"] == []
    assert found["home"] == ["of_ada"] and found["inbound"] == ["ada+lab01"]
    assert found["write"][0] == "done" and "done" not in found["write"][1:]
    assert found["processes"] <= 3 and found["name"] == "ada" and not found["token"]
    assert found["uid"] == (people.active(layout)["ada"].uid if layout.separate else 1000)


def test_the_keeper_ends_all_that_it_keeps(layout: Layout) -> None:
    person = people.active(layout)["ada"]
    argv = [*shield.command(layout, person), "/bin/sh", "-c", "sleep 300 & sleep 300 & echo up; wait"]
    keeper = subprocess.Popen(argv, cwd="/", stdout=subprocess.PIPE, text=True, **layout.run_as(person.uid))
    assert keeper.stdout.readline() == "up\n"
    keeper.terminate()
    keeper.wait(20)
    assert keeper.stdout.read() == ""  # ends when the last process that could write has ended


def test_words_on_the_command_line_are_no_secrets(layout: Layout) -> None:
    words = " ".join(shield.command(layout, people.active(layout)["ada"]))
    assert "secret-token" not in words and "TOKEN" not in words
