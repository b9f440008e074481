"""The class's YAML file, the list of people, passwords: what is taken, what is refused and with which sentence."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from autograder.course import UserError
from autograder.hub import people
from autograder.hub.classfile import Person, read_class
from autograder.hub.init import pull_link, render
from autograder.hub.layout import FIRST_UID, Layout
from autograder.hub.passwords import Passwords

DEMO = Path(__file__).parents[2] / "deploy" / "demo_class.yaml"


def write(folder: Path, **spec: object) -> Path:
    path = folder / "class.yaml"
    path.write_text(yaml.safe_dump({"course": "llm"} | spec))
    return path


def test_the_demonstration_class_is_read() -> None:
    spec = read_class(DEMO)
    assert (spec.course, spec.labs) == ("llm", ("lab01",))
    assert [person.role for person in spec.people] == ["student", "student", "instructor"]
    assert spec.address.host == "127.0.0.1" and len(set(spec.address.ports)) == 4


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"course": "L L M"}, "course is 'L L M'"),
        ({"peeple": []}, "'peeple', which is not one of course, title"),
        ({"people": [{"name": "Ada"}]}, "'Ada' cannot be a user name"),
        ({"people": [{"name": "a+b"}]}, "'a+b' cannot be a user name"),
        ({"people": [{"name": "grader"}]}, "none of root"),
        ({"people": [{"name": "ada"}, {"name": "ada"}]}, "ada stands twice"),
        ({"people": [{"name": "ada", "role": "teacher"}]}, "the role 'teacher'"),
        ({"people": ["ada"]}, "'ada' where `key: value` pairs belong"),
        ({"address": {"public": 8000, "hub": 8000}}, "give four different ones"),
        ({"address": {"public": 70000}}, "from 1 to 65535"),
        ({"limits": {"servers": 0}}, "servers: 0"),
        ({"limits": {"memory": 1}}, "'memory', which is not one of memory_mib"),
        ({"users": "many"}, "users is 'many'"),
        ({"image": "course:1"}, "see deploy/README.md"),
        ({"login": {"kind": "ldap"}}, "kind 'ldap'"),
        ({"students": "none.csv"}, "none.csv cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, spec: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as refused:
        read_class(write(tmp_path, **spec))
    assert says in str(refused.value)


def test_students_come_from_a_csv(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("\ufeffname,email,first,last\nada,ada@x.edu,Ada,Lovelace\nbo,,,\n", "utf-8")
    spec = read_class(write(tmp_path, students="roster.csv", people=[{"name": "grace", "role": "instructor"}]))
    assert [(p.name, p.role, p.email) for p in spec.people] == [
        ("grace", "instructor", ""), ("ada", "student", "ada@x.edu"), ("bo", "student", ""),
    ]  # fmt: skip


def test_a_csv_without_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("id,email\n1,a@x\n")
    with pytest.raises(UserError, match="no column `name`"):
        read_class(write(tmp_path, students="roster.csv"))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write(tmp_path)
    (tmp_path / "secrets").mkdir()
    return Layout.of(tmp_path)


def test_user_ids_are_given_once_and_never_again(layout: Layout) -> None:
    people.add(layout, [Person("ada"), Person("bo")])
    first = people.enrolled(layout)
    people.write(layout, {"bo": first["bo"]})
    people.add(layout, [Person("cy"), Person("bo", email="bo@x.edu")])
    now = people.enrolled(layout)
    assert [first["ada"].uid, first["bo"].uid] == [FIRST_UID + 1, FIRST_UID + 2]
    assert (now["cy"].uid, now["bo"].uid, now["bo"].email) == (FIRST_UID + 3, FIRST_UID + 2, "bo@x.edu")
    assert stat.S_IMODE(layout.people.stat().st_mode) == 0o600


def test_passwords_are_hashed_private_and_ones_own(layout: Layout) -> None:
    passwords = Passwords(layout.secrets / "passwords.json")
    hers, his = passwords.give("ada"), passwords.give("bo")
    assert passwords.right("ada", hers) and passwords.right("bo", his)
    assert not passwords.right("ada", his) and not passwords.right("cy", his) and not passwords.right("ada", "")
    assert hers not in passwords.path.read_text() and stat.S_IMODE(passwords.path.stat().st_mode) == 0o600
    assert passwords.give("ada") != hers and not passwords.right("ada", hers)


def test_the_configuration_holds_no_secret_and_compiles(layout: Layout) -> None:
    for name in ("proxy_token", "enrol_token", "cookie_secret"):
        (layout.secrets / name).write_text(f"secret-{name}")
    text = render(layout)
    compile(text, "jupyterhub_config.py", "exec")
    assert "secret-" not in text
    assert pull_link(layout.spec) in text


@pytest.mark.parametrize(
    ("login", "wanted"),
    [
        (
            {"kind": "lti", "class": "ltiauthenticator.lti13.auth.LTI13Authenticator", "options": {"issuer": "https://x"}},
            ["fromlist=['LTI13Authenticator']", "c.LTI13Authenticator.issuer = 'https://x'"],
        ),
        (
            {"kind": "oauth", "class": "oauthenticator.generic.GenericOAuthenticator", "options": {"client_id": "c"}},
            ["c.GenericOAuthenticator.client_id = 'c'", 'client_secret = here.secret("client_secret")'],
        ),
    ],
)
def test_other_logins_are_configured(tmp_path: Path, login: dict[str, object], wanted: list[str]) -> None:
    write(tmp_path, login=login)
    text = render(Layout.of(tmp_path))
    compile(text, "jupyterhub_config.py", "exec")
    assert all(line in text for line in wanted)


def test_a_secret_in_the_class_file_is_refused(tmp_path: Path) -> None:
    login = {"kind": "oauth", "class": "a.B", "options": {"client_secret": "s"}}
    write(tmp_path, login=login)
    with pytest.raises(UserError, match="secrets/client_secret"):
        render(Layout.of(tmp_path))
