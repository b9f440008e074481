"""Models and clusters as small YAML files: those that come with the package, by name, and one's own, by path.

A model's file has the fields of `spec.Model`. A cluster's has those of `spec.Cluster`, with memory_gb (10**9 bytes),
links as {alpha: seconds, bandwidth: bytes a second}, and efficiency: a name (A100) or the shares of `spec.Efficiency`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import yaml

from utils.cost import AlphaBeta
from utils.planner.efficiency import A100
from utils.planner.model import Model
from utils.planner.spec import Cluster, Efficiency

HERE = Path(__file__).parent
FITTED = {"A100": A100}
RENAMED = {"memory_bytes": "memory_gb"}


def names(kind: str) -> list[str]:
    """The given files' names; kind is "models" or "clusters".

    >>> "gpt3-175b" in names("models"), "dgx-a100" in names("clusters")
    (True, True)
    """
    return sorted(path.stem for path in (HERE / kind).glob("*.yaml"))


def load_model(name: str) -> Model:
    """A model by the name of a given file, or the path of one's own.

    ValueError, one sentence: there is no such file, it is no YAML, a field is missing, unknown or of the wrong kind.

    >>> load_model("7b").parameters
    6738415616
    """
    where, values = _read(name, "models")
    return _make(Model, values, where)


def load_cluster(name: str, gpus: int | None = None) -> tuple[Cluster, Efficiency]:
    """A cluster and its efficiency, as `load_model`; gpus: in place of the file's number.

    >>> cluster, efficiency = load_cluster("dgx-a100", gpus=16)
    >>> cluster.gpus, cluster.between.bandwidth / 1e9, efficiency.gemm < 1
    (16, 25.0, True)
    """
    where, values = _read(name, "clusters")
    efficiency = values.pop("efficiency", {})
    if isinstance(efficiency, str):
        if efficiency not in FITTED:
            known = ", ".join(sorted(FITTED))
            raise ValueError(f"{where}: efficiency {efficiency!r} is not known; give {known}, or shares of your own")
        shares = FITTED[efficiency]
    else:
        shares = _make(Efficiency, _mapping(efficiency, f"{where}: efficiency"), f"{where}: efficiency")
    for level in ("node", "between"):
        if level in values:
            values[level] = _link(values[level], f"{where}: {level}")
    if "memory_gb" in values:
        values["memory_bytes"] = _number(values.pop("memory_gb"), f"{where}: memory_gb") * 1e9
    if gpus is not None:
        values["gpus"] = gpus
    return _make(Cluster, values, where), shares


def _read(name: str, kind: str) -> tuple[str, dict]:
    path = HERE / kind / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise ValueError(f"{name}: no file of that name; given {kind} are {', '.join(names(kind))}, or give a path")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise ValueError(f"{path}: not YAML{line}; a line is like `layers: 32`") from None
    return str(path), dict(_mapping(values, str(path)))


def _mapping(values: object, where: str) -> dict:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: names with values are wanted, like `layers: 32`, not {type(values).__name__}")
    return values


def _number(value: object, where: str) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 3e-6 as text
        try:
            value = float(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where} is {value!r}; a number is wanted")
    return value


def _link(values: object, where: str) -> AlphaBeta:
    parts = _mapping(values, where)
    if set(parts) != {"alpha", "bandwidth"}:
        there = ", ".join(map(str, parts)) or "nothing"
        raise ValueError(f"{where} has {there}; alpha (seconds) and bandwidth (bytes a second) are wanted")
    alpha, bandwidth = (_number(parts[name], f"{where}: {name}") for name in ("alpha", "bandwidth"))
    if bandwidth <= 0:
        raise ValueError(f"{where}: bandwidth is {bandwidth}; it must be above 0")
    return AlphaBeta(alpha, 1 / bandwidth)


def _make(kind: type, values: dict, where: str):
    known = {field.name: field for field in fields(kind)}
    unknown = [str(name) for name in values if name not in known]
    if unknown:
        raise ValueError(f"{where}: {unknown[0]} is no field of a {kind.__name__.lower()}; they are "
                         f"{', '.join(RENAMED.get(name, name) for name in known)}")  # fmt: skip
    needed = [name for name, field in known.items() if field.default is MISSING]
    missing = [RENAMED.get(name, name) for name in needed if name not in values]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    for name, value in values.items():
        if known[name].type == "float":
            values[name] = _number(value, f"{where}: {name}")
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None
