"""What in a student's code no answer needs, for a person to look at: never a mark.

Code that replaces functions of libraries, reaches into the machinery that runs and traces it, or goes round the ranks'
messages. Marks do not rest on this: verdicts are made in another process. It reads the text only, so code that hides
what it does is seen by its hiding (`exec`, `eval`), or not at all.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

MOST = 6
# modules that only the machinery, or something that goes round it, has a use for
MACHINERY = ("autograder", "nbgrader", "utils.answering", "utils.checks", "utils.ranks", "utils.selfcheck",
             "utils.trace", "IPython.core", "_posixshmem", "_testcapi", "atexit", "ctypes", "mmap", "sitecustomize",
             "multiprocessing.shared_memory", "importlib.machinery", "importlib.abc")  # fmt: skip
REACHES = ("builtins.__import__", "gc.get_objects", "gc.get_referrers", "inspect.currentframe", "inspect.stack",
           "sys._current_frames", "sys._getframe", "sys.displayhook", "sys.excepthook", "sys.meta_path", "sys.modules",
           "sys.path_hooks", "sys.setprofile", "sys.settrace", "threading.setprofile", "threading.settrace",
           "os.fork", "os.memfd_create", "importlib.reload", "asyncio.create_subprocess_exec")  # fmt: skip
SPECIAL = ("__builtins__", "__globals__", "__subclasses__", "__code__", "f_globals", "f_locals", "f_back")
OF_GROUPS = ("inner", "recorder")  # what a traced process group holds
PLACES = ("/proc/", "/dev/shm", "gradebook", "sitecustomize", "usercustomize", ".pth", ".ipython")
KNOWN = {"torch": "torch", "dist": "torch.distributed", "np": "numpy", "numpy": "numpy", "utils": "utils",
         "check": "utils.check", "sys": "sys", "builtins": "builtins"}  # fmt: skip
OWN_SETTINGS = ("matplotlib", "torch.backends", "sys.path", "os.environ", "sys.stdout", "sys.stderr")


def suspicions(source: str) -> list[str]:
    """What a cell's text does that no answer needs, each in a few words, without repetition.

    Example:
        >>> suspicions("import numpy as np\\nnp.testing.assert_allclose = print")
        ['replaces numpy.testing.assert_allclose']
    """
    try:
        tree = ast.parse(_plain_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it cannot run either
    found: dict[str, None] = {}
    with contextlib.suppress(RecursionError):
        found = dict.fromkeys(_Reader(tree).all())
    return list(found)[:MOST]


def _plain_python(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


class _Reader:
    """Reads one cell; `names` are the modules, and things of modules, that its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree, self.names = tree, dict(KNOWN)
        self.docs = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    root = name.name.partition(".")[0]
                    self.names[name.asname or root] = name.name if name.asname else root
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    self.names[name.asname or name.name] = f"{node.module or ''}.{name.name}"
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.docs.add(id(node.value))

    def all(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from self.imported(node)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
                yield from self.assigned(node)
            elif isinstance(node, ast.Call):
                yield from self.called(node)
            elif isinstance(node, (ast.Attribute, ast.Name)):
                yield from self.reached(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docs:
                yield from (f"names {place}" for place in PLACES if place in node.value)

    def path(self, node: ast.AST) -> str:
        """`torch.distributed.send` for `dist.send`; "" where it does not start at a module."""
        if isinstance(node, ast.Attribute):
            inner = self.path(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        if isinstance(node, ast.Subscript):
            return self.path(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars" and node.args:
            return self.path(node.args[0])
        return self.names.get(node.id, "") if isinstance(node, ast.Name) else ""

    def imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        module = getattr(node, "module", None)
        for name in node.names:
            full = f"{module}.{name.name}" if module else name.name
            if _within(full, MACHINERY):
                yield f"imports {full}"

    def assigned(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) -> Iterator[str]:
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(part, (ast.Attribute, ast.Subscript)):
                    yield from self.replaced(self.path(part))

    def replaced(self, path: str) -> Iterator[str]:
        if path and not _within(path, OWN_SETTINGS):
            yield f"replaces {path}"

    def called(self, node: ast.Call) -> Iterator[str]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("setattr", "delattr") and node.args and self.path(node.args[0]):
            yield from self.replaced(self.path(node.args[0]) + "." + _text(node.args[1:2]))
        elif name in ("exec", "eval", "compile", "__import__"):
            yield f"runs text as code ({name})"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("patch", "object") and "mock" in self.path(
            node.func
        ):
            yield "patches with unittest.mock"
        elif self.path(node.func) == "importlib.import_module" and _within(_text(node.args[:1]), MACHINERY):
            yield f"imports {_text(node.args[:1])}"

    def reached(self, node: ast.Attribute | ast.Name) -> Iterator[str]:
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        path = self.path(node)
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if name in SPECIAL or (name in OF_GROUPS and isinstance(node, ast.Attribute) and not own):
            yield f"reaches for {name}"
        elif path in REACHES or _within(path, MACHINERY):
            yield f"uses {path}"
        elif name == "get_ipython" and not self._is_magic(node):
            yield "uses get_ipython"

    def _is_magic(self, name: ast.AST) -> bool:
        """Whether this `get_ipython` is what a magic (`%time`, `!ls`) was turned into, or only enables one."""
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("run_line_magic", "run_cell_magic", "system", "getoutput")
            and isinstance(node.value, ast.Call)
            and node.value.func is name
            for node in ast.walk(self.tree)
        )


def _within(path: str, modules: tuple[str, ...]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def _text(nodes: list[ast.expr]) -> str:
    return nodes[0].value if nodes and isinstance(nodes[0], ast.Constant) and isinstance(nodes[0].value, str) else "?"
