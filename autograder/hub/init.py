"""`hub init`: from a class's YAML file to a folder that the hub runs from. Run again, it brings the folder up to date.

What people did there stays: homes, hand-ins, the gradebook, passwords. Written anew: the configuration, the settings,
the students' bundle, the lectures.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autograder.bundle import bundle
from autograder.course import REPO, UserError, put_programs_on_path
from autograder.hub import people
from autograder.hub.classfile import ClassFile, read_class
from autograder.hub.gradebook import enter
from autograder.hub.layout import Layout
from autograder.hub.passwords import Passwords, write_private
from autograder.hub.settings import write_settings
from autograder.hub.shield import LECTURES, write_names

TEMPLATES = Path(__file__).parent / "templates"
LABS_NOTE = """# Labs

Open *Nbgrader > Assignment List* in the menu and press *Fetch*: the lab appears here, where the index links to it.
*Submit* in the same list hands it in, as often as you like: the last one counts.
"""
PRIVATE = ("secrets", "hub", "log")


def init(class_file: Path, folder: Path) -> tuple[Layout, dict[str, str]]:
    """Make or refresh a class's folder; its layout, and the passwords that were given to people new in it.

    Who was taken out stays out, though the YAML file names them: `hub enrol` brings them back.

    Raises:
        UserError: the YAML file is not right, or a lab that it names cannot be released.
    """
    put_programs_on_path()
    spec = read_class(class_file)
    folder = folder.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    _keep_class(class_file, folder / "class.yaml")
    layout = Layout.of(folder)
    _folders(layout)
    left = people.enrolled(layout).keys() - people.active(layout).keys()
    given = enrol_in_folder(layout, [person for person in spec.people if person.name not in left])
    _secrets(layout)
    _bundle(layout)
    _lectures(layout)
    write_settings(layout)
    write_names(layout)
    _grader_owns(layout)
    enter(layout, [person for person in people.active(layout).values() if person.role == "student"])
    layout.config.write_text(render(layout), encoding="utf-8")
    return layout, given


def _keep_class(source: Path, target: Path) -> None:
    """Keep the class's file without its people: they are in people.csv from now on."""
    raw = yaml.safe_load(source.read_text(encoding="utf-8"))
    text = yaml.safe_dump({key: value for key, value in raw.items() if key not in ("people", "students")})
    target.write_text(text, encoding="utf-8")


def _folders(layout: Layout) -> None:
    layout.folder.chmod(0o755)
    for name in PRIVATE:
        (layout.folder / name).mkdir(exist_ok=True)
        (layout.folder / name).chmod(0o700)
    for path in (layout.exchange, layout.outbound.parent, layout.folder / "homes", layout.data / "home"):
        path.mkdir(parents=True, exist_ok=True)
    for path in (layout.outbound, layout.inbound("x").parent, layout.feedback("x").parent, layout.data / "release"):
        path.mkdir(exist_ok=True)


def enrol_in_folder(layout: Layout, newcomers: list[people.Person]) -> dict[str, str]:
    """Enter people in people.csv, make their folders, and give those without one a password; the new passwords."""
    passwords, given = Passwords(layout.secrets / "passwords.json"), {}
    for person in people.add(layout, newcomers):
        people.places(layout, person)
        if layout.spec.login["kind"] == "password" and person.name not in passwords:
            given[person.name] = passwords.give(person.name)
    return given


def _secrets(layout: Layout) -> None:
    for name in ("proxy_token", "enrol_token", "cookie_secret"):
        if not (layout.secrets / name).is_file():
            write_private(layout.secrets / name, secrets.token_hex(32) + "\n")


def _bundle(layout: Layout) -> None:
    """The students' `utils`, less what answers a lab that is not out; each lab that is out is released anew."""
    course = layout.course
    bundle(course, layout.student, [course.lab(name) for name in layout.spec.labs])
    for name in ("labs", "notebooks"):  # labs come through the exchange, lectures by the pull link
        shutil.rmtree(layout.student / name, ignore_errors=True)


def _lectures(layout: Layout) -> None:
    """A git repository of the lecture notebooks, one commit for each state of them."""
    git = shutil.which("git")
    if not git:
        raise UserError("git is not installed, and lectures are pulled by it: apt install git.")
    work = layout.hub / "lectures"
    shutil.rmtree(work, ignore_errors=True)
    (work / "notebooks").mkdir(parents=True)
    for path in sorted((REPO / "notebooks").glob("*.ipynb")):
        shutil.copy(path, work / "notebooks")
    if (REPO / "notebooks" / "images").is_dir():
        shutil.copytree(REPO / "notebooks" / "images", work / "notebooks" / "images")
    shutil.copy(REPO / "LICENSE", work)
    (work / "labs").mkdir()
    (work / "labs" / "README.md").write_text(LABS_NOTE, encoding="utf-8")
    if not layout.lectures.is_dir():
        _git(git, "init", "--quiet", "--bare", "--initial-branch=main", str(layout.lectures))
    tree = ["--git-dir", str(layout.lectures), "--work-tree", str(work)]
    _git(git, *tree, "add", "--all")
    if subprocess.run([git, *tree, "diff", "--cached", "--quiet"], capture_output=True).returncode or _empty(git, tree):
        who = ["-c", "user.name=course", "-c", "user.email=course@localhost"]
        _git(git, *who, *tree, "commit", "--quiet", "-m", "Lecture notebooks")
    shutil.rmtree(work)


def _empty(git: str, tree: list[str]) -> bool:
    return subprocess.run([git, *tree, "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True).returncode != 0


def _git(git: str, *words: str) -> None:
    done = subprocess.run([git, *words], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise UserError(f"git could not make the lectures' repository: {done.stderr.strip()}")


def _grader_owns(layout: Layout) -> None:
    """The grader's own: the gradebook and all under course/, and the exchange less what belongs to students."""
    layout.data.chmod(0o700)
    layout.exchange.chmod(0o755)
    inbound = layout.inbound("x").parent
    mine = [layout.exchange, layout.outbound.parent, inbound, layout.feedback("x").parent]
    for path in (*mine, *layout.outbound.rglob("*"), layout.outbound, layout.data, *layout.data.rglob("*")):
        if not path.is_symlink():
            people.own(layout, path, layout.grader_uid)
    for path in (inbound, layout.feedback("x").parent):
        path.chmod(0o711)


def render(layout: Layout) -> str:
    """The text of jupyterhub_config.py."""
    spec, address = layout.spec, layout.spec.address
    programs = Path(sys.executable).parent
    values = {
        "course": spec.course,
        "folder": str(layout.folder),
        "title": spec.title,
        "limits": spec.limits,
        "bind_url": address.url,
        "hub_url": f"http://127.0.0.1:{address.hub}",
        "proxy_url": f"http://127.0.0.1:{address.proxy}",
        "grader_url": f"http://127.0.0.1:{address.grader}",
        "proxy_command": [str(programs.parent / "node" / "node_modules" / ".bin" / "configurable-http-proxy")],
        "grader_command": [*_as_grader(layout), str(programs / "jupyterhub-singleuser")],
        "culler_command": [
            sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={spec.limits.idle_minutes * 60}",
            "--cull-every=60",
        ],
        "default_url": pull_link(spec),
        "login_class": _login_class(spec),
        "login_options": _login_options(spec),
    }  # fmt: skip
    plain = {name: value if name in ("limits", "course") else repr(value) for name, value in values.items()}
    plain["login_class"], plain["login_options"] = values["login_class"], values["login_options"]
    env = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return env.get_template("jupyterhub_config.py.j2").render(plain)


def _as_grader(layout: Layout) -> list[str]:
    if not layout.separate:
        return []
    uid = layout.grader_uid
    return ["/usr/bin/setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "--"]


def pull_link(spec: ClassFile) -> str:
    """The page that a server opens with: it pulls the lectures into the home and shows their index."""
    source = LECTURES if spec.lectures == "notebooks" else spec.lectures
    return f"/git-pull?repo={source}&branch=main&targetpath=course&urlpath=lab/tree/course/notebooks/index.ipynb"


def _login_class(spec: ClassFile) -> str:
    if spec.login["kind"] == "password":
        return "spawner.PasswordLogin"
    module, _, name = str(spec.login.get("class", "")).rpartition(".")
    if not module:
        kind = spec.login["kind"]
        raise UserError(f"login of the kind {kind} needs `class:`, such as {EXAMPLES[kind]}.")
    return f"spawner.only_enrolled(__import__({module!r}, fromlist=[{name!r}]).{name})"


EXAMPLES = {
    "oauth": "oauthenticator.generic.GenericOAuthenticator",
    "lti": "ltiauthenticator.lti13.auth.LTI13Authenticator",
}


def _login_options(spec: ClassFile) -> list[tuple[str, str]]:
    """Settings of the login's own class; the client secret is read from a file of secrets/, never written here."""
    name = str(spec.login.get("class", "")).rpartition(".")[2]
    options = [(f"{name}.{key}", repr(value)) for key, value in (spec.login.get("options") or {}).items()]
    if any(key.endswith("secret") for key, _ in options):
        raise UserError("login has a secret in class.yaml: put it into secrets/client_secret instead.")
    if spec.login["kind"] == "oauth":
        options.append((f"{name}.client_secret", 'here.secret("client_secret")'))
    return options
