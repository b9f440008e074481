"""Makes `.venv-hub`: the course's own environment once more, and what a hub adds; `make hub` runs it.

The packages of .venv are hard-linked, not copied (no second 1.8 GB); the hub's come from requirements-hub.lock and
the proxy from package-lock.json. Run by .venv's Python; the new environment takes an interpreter that other users may
run, since students' servers are not the installer's. HUB_VERSION takes another JupyterHub than the locked one.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).resolve().parent
WANTED_NODE = 18


def stop(text: str) -> None:
    """End with one sentence."""
    print(text, file=sys.stderr)
    raise SystemExit(2)


def open_to_all(program: Path) -> bool:
    """Whether other users can reach and run a program: every folder above it lets them through."""
    real = program.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (real, *real.parents))


def interpreter() -> Path:
    """A Python of .venv's version that every user may run; .venv's own base where there is no such."""
    base = Path(sys._base_executable)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for found in (base, Path(f"/usr/bin/python{version}"), Path(f"/usr/local/bin/python{version}")):
        if found.exists() and open_to_all(found):
            return found
    print(f"No Python {version} here that every user may run: all servers of the hub will run as one user.")
    return base


def make(venv: Path) -> Path:
    """Make the environment; the path of its Python."""
    shutil.rmtree(venv, ignore_errors=True)
    made = subprocess.run([interpreter(), "-m", "venv", "--without-pip", venv], capture_output=True, text=True)
    if made.returncode:
        stop(f"{interpreter()} cannot make an environment ({made.stderr.strip()}): apt install python3-venv.")
    python = venv / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    target = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    _link(Path(sysconfig.get_path("purelib")), target)
    for name in ("share", "etc"):
        if (Path(sys.prefix) / name).is_dir():
            _link(Path(sys.prefix) / name, venv / name)
    _programs(target, venv / "bin")
    return python


def _link(source: Path, target: Path) -> None:
    """Copy a tree by hard links where the file system can, else by content."""

    def place(here: str, there: str) -> str:
        try:
            os.link(here, there)
        except OSError:
            shutil.copy2(here, there)
        return there

    shutil.copytree(source, target, symlinks=True, copy_function=place, dirs_exist_ok=True)


def _programs(packages: Path, folder: Path) -> None:
    """The programs of the linked packages (jupyter, nbgrader, alembic, ...), for this environment's Python."""
    for package in distributions(path=[str(packages)]):
        for entry in package.entry_points:
            if entry.group != "console_scripts":
                continue
            module, _, name = entry.value.partition(":")
            top = name.split(".")[0].split("[")[0].strip()
            path = folder / entry.name
            path.write_text(
                f"#!{folder}/python\nimport sys\nfrom {module} import {top}\nsys.exit({name.split('[')[0].strip()}())\n"
            )
            path.chmod(0o755)


def proxy(venv: Path) -> None:
    """The proxy, from the npm registry in the locked versions."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        stop("The hub's proxy runs on node and comes by npm, and one of them is missing: apt install nodejs npm.")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip().lstrip("v")
    if int(version.split(".")[0] or 0) < WANTED_NODE:
        stop(f"The hub's proxy needs node {WANTED_NODE} or newer, and this is {version}.")
    folder = venv / "node"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    command = [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"]
    if subprocess.run(command, cwd=folder, timeout=600).returncode:
        stop("npm could not install the hub's proxy; its message is above.")


def main(venv: Path) -> None:
    """Make everything, from nothing."""
    print(f"Making {venv.name}: the course's packages, JupyterHub and its proxy (a minute or two, once).", flush=True)
    python = make(venv)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    # The course's lock again: some versions in it depend on the interpreter's patch version, which may be another here.
    locks = ["-r", HERE.parent / "requirements.lock", "-r", HERE / "requirements-hub.lock"]
    subprocess.run([*pip, *locks], check=True, timeout=1800)
    if other := os.environ.get("HUB_VERSION"):
        subprocess.run([*pip, f"jupyterhub=={other}"], check=True, timeout=600)
    proxy(venv)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
