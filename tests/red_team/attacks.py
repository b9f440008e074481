"""Attacks on grading: the code of each, what its answer deserves by itself, and whether a person must be told.

Cells are those of `lab91_walls.py`. An attack that reads what it must not prints `TAKEN()`, which no text of a cell
contains: the tests look for that word in everything that comes out. `CANARY` stands for a folder outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SUM, TRAFFIC, COUNT = "sum_values", "sum_traffic", "messages_value"
WRONG = "def add_up(x):\n    x += 1\n"
BUILTIN = "def add_up(x):\n    dist.all_reduce(x)\n"
ALONE = "def add_up(x):\n    x.copy_(sum(start(rank, len(x), SALT) for rank in range(dist.get_world_size())))\n"
FIVE = "def answer_messages(p):\n    return 5\n"
TAKEN = "def TAKEN(*what):\n    print('TAK' + 'EN', *what)\n"
LINK = """
import gc, time, os, sys
from utils.answering.serve import Link
from utils.ranks import plain, wire
link = next(o for o in gc.get_objects() if isinstance(o, Link))
def say(kind, body):
    link.sock.sendall(wire.HEAD.pack(len(body), kind) + body)
"""


@dataclass(frozen=True)
class Attack:
    """`loses`: the tests that the answer does not pass by right. `flagged`: a person must be told, in a sentence with
    this text in it where it is a text. `fooled`: tests that forged evidence passes until that person has looked."""

    name: str
    kind: str
    cells: dict[str, str]
    loses: tuple[str, ...] = ()
    flagged: bool | str = False
    fooled: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    says: str = ""


def _sum(name: str, code: str, flagged: bool | str = True, answer: str = WRONG, **more: object) -> Attack:
    """An attack before a wrong sum."""
    more = {"loses": (SUM, TRAFFIC), "kind": "patching"} | more
    return Attack(name, cells={"add_up": f"{code}\n{answer}"}, flagged=flagged, **more)


def _count(name: str, code: str, flagged: bool | str = False, **more: object) -> Attack:
    """An attack in the cell of the question."""
    more = {"loses": (COUNT,), "kind": "values"} | more
    return Attack(name, cells={"answer_messages": code}, flagged=flagged, **more)


PATCHING = [
    _sum("torch.equal", "torch.equal = lambda *a: True", "torch.equal"),
    _sum("numpy.testing", "import numpy as np\nnp.testing.assert_allclose = lambda *a, **k: None", "numpy.testing"),
    _sum("hidden setattr", "m = [torch][0]\nsetattr(m, 'eq' + 'ual', lambda *a: True)", "torch.equal"),
    _sum("builtins.all",
         "import builtins\nbuiltins.all = lambda *a: True", "builtins.all", loses=(SUM, TRAFFIC, COUNT)),
    _sum("AssertionError", "import builtins\nbuiltins.AssertionError = type('Fine', (Exception,), {})", True),
    _sum("check", "check.no_collectives = lambda trace: None", "no_collectives", BUILTIN, loses=(TRAFFIC,)),
    _sum("code of check", "check.no_collectives.__code__ = (lambda trace: None).__code__", True, BUILTIN,
         loses=(TRAFFIC,)),
    _sum("display hook", "get_ipython().displayhook(20.0)", "get_ipython"),
    _sum("a number shown last", "", False, WRONG + "20.0"),
    _sum("IPython's run_cell",
         "get_ipython().run_cell = lambda *a, **k: None", "get_ipython", loses=(SUM, TRAFFIC, COUNT)),
    _sum("source transformer", "get_ipython().input_transformers_cleanup.append("
         "lambda lines: [l.replace('assert', 'print') for l in lines])", "get_ipython"),
    _sum("cell events", "get_ipython().events.register('post_run_cell', lambda result: print('all passed'))",
         "get_ipython"),
    _sum("settrace", "import sys\ndef t(frame, event, arg):\n    return t\nsys.settrace(t)", "settrace"),
    _sum("setprofile in threads", "import threading\nthreading.setprofile(lambda *a: None)", "setprofile"),
    _sum("import hook", "import sys\nclass Hook:\n    def find_spec(self, name, *a):\n        return None\n"
         "sys.meta_path.insert(0, Hook())", "sys.meta_path"),
    _sum("sys.modules", "import sys, types\nsys.modules['autograder'] = sys.modules['nbgrader'] = "
         "types.ModuleType('fake')", "sys.modules"),
    _sum("atexit", "import atexit, os\natexit.register(os._exit, 0)", "atexit"),
    _sum("a thread that patches", "import threading, time\ndef again():\n    while True:\n        time.sleep(0.01)\n"
         "        torch.equal = lambda *a: True\nthreading.Thread(target=again, daemon=True).start()", "torch.equal"),
    _sum("launch of its own", "class Run:\n    values = [torch.zeros(5)] * 2\nlaunch = lambda *a, **k: Run()", False),
    _sum("launch replaced", "import utils\nutils.launch = lambda *a, **k: None", "utils.launch"),
    _sum("oracle of its own", "def start(rank, numel, salt):\n    return torch.zeros(numel)\nprobe_sum = None", False),
    _sum("a tensor that equals all", "class Liar(torch.Tensor):\n    def __eq__(self, other):\n        return True\n",
         False, "def add_up(x):\n    x.__class__ = Liar\n"),
]  # fmt: skip

VALUES = [
    _count("a list that equals all", "class L(list):\n    def __eq__(self, o):\n        return True\n"
           "def answer_messages(p):\n    return L([p])\n"),
    _count("an int that equals all", "class I(int):\n    def __eq__(self, o):\n        return True\n"
           "    __hash__ = int.__hash__\ndef answer_messages(p):\n    return I(5)\n"),
    _count("not a number", "def answer_messages(p):\n    return float('nan')\n", says="nan"),
    _count("infinite", "def answer_messages(p):\n    return float('inf')\n", says="inf"),
    _count("a huge number", "def answer_messages(p):\n    return 10 ** 100_000\n"),
    _count("a list in itself", "def answer_messages(p):\n    x = []\n    x.append(x)\n    return x\n"),
    _count("nested without end", "def answer_messages(p):\n    x = []\n    for _ in range(100_000):\n        x = [x]\n"
           "    return x\n"),
    _count("an exception named as ours", "class CheckFailed(AssertionError):\n    pass\nclass LaunchTimeout(Exception):"
           "\n    pass\ndef answer_messages(p):\n    raise LaunchTimeout('passed, full marks')\n"),
    _count("an exception without text", "class Bad(Exception):\n    def __str__(self):\n        raise self\n"
           "def answer_messages(p):\n    raise Bad\n"),
    _count("a system exit", "import sys\ndef answer_messages(p):\n    sys.exit(0)\n"),
    _count("escapes and pages", "def answer_messages(p):\n    raise ValueError('\\x1b[2J\\x1b]0;owned\\x07 </pre>"
           "<script>alert(1)</script> \\x00 \\ud800 \\u202e')\n", says="<script>"),
    _count("an error like the sandbox's", "from autograder.verdict import AnswerLost\n", "autograder",
           says="not defined"),
    _count("a trap to unpickle", "import os\nclass Trap:\n    def __reduce__(self):\n        return os.system, "
           "('touch CANARY/planted',)\ndef answer_messages(p):\n    return Trap()\n"),
]  # fmt: skip

FRAMES = [
    _count("a second end of the cell", LINK + "done = plain.encode({'request': 99, 'status': 'ok', 'error': None, "
           "'changed': []})\nsay(b'D', done)\ntime.sleep(20)\n" + FIVE, "sent", kind="frames"),
    _count("an answer ahead", LINK + "say(b'A', plain.encode({'request': 99, 'values': [[0, 2, 156]]}))\n"
           "time.sleep(20)\n" + FIVE, "sent", kind="frames"),
    _count("html as output", LINK + "say(b'O', plain.encode({'kind': 'display_data', 'data': {'text/html': '<b>'}}))\n"
           "time.sleep(20)\n" + FIVE, "sent", kind="frames"),
    _count("a pickle as a frame", LINK + "import pickle\nsay(b'D', pickle.dumps(print))\ntime.sleep(20)\n" + FIVE,
           "sent", kind="frames"),
    _count("frames from a rank", "import os\ndef answer_messages(p):\n    for fd in range(3, 64):\n        try:\n"
           "            os.write(fd, (9).to_bytes(8, 'little') + b'A' + b'x' * 9)\n        except OSError:\n"
           "            pass\n    return 5\n", kind="frames"),
    _count("the channel closed", LINK + "import socket\nlink.sock.shutdown(socket.SHUT_RDWR)\n" + FIVE, True,
           kind="frames"),
]  # fmt: skip

FORGED_JOURNAL = """
def add_up(x):
    p, me = dist.get_world_size(), dist.get_rank()
    group = dist.group.WORLD
    if not group.introduced:
        group.introduce()
    for other in range(p - 1):
        for op, peer in (("send", (me + 1) % p), ("recv", (me - 1) % p)):
            n = 4 * len(x)
            group.recorder.add(op, group.number, x, n, n * (op == "send"), n * (op == "recv"), peer, 0, 0, "")
    x.copy_(sum((torch.arange(len(x), dtype=torch.float32) * (r + 1) + 31 * {5: 1, 400: 7}.get(len(x), 3)) % 97
                for r in range(p)))
"""
TRACES = [
    Attack("sends only told of", "traces", {"add_up": FORGED_JOURNAL}, flagged="network carried only",
           fooled=(TRAFFIC,)),
    _sum("no messages told of", "import utils.trace.recorder as r\nr.Recorder.add = lambda *a, **k: 0", "utils.trace",
         BUILTIN, kind="traces", loses=(TRAFFIC,)),
    _sum("an empty trace", "import utils.answering.probes as p\np.trace_rows = lambda trace: {'ranks': 3}",
         "trace_rows", BUILTIN, kind="traces", loses=(SUM, TRAFFIC, COUNT)),
    _sum("the inner group", "", "inner", "def add_up(x):\n    dist.group.WORLD.inner.allreduce([x]).wait()\n",
         kind="traces", loses=(TRAFFIC,)),
    _sum("sockets of its own", "", "the network carried", """
import socket
def add_up(x):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        for _ in range(300):
            own.sendto(x.numpy().tobytes() * (1 + 1000 // len(x)), ("127.0.0.1", 5100))
    dist.all_reduce(x)
""", kind="traces", loses=(TRAFFIC,)),
    _sum("files between ranks", "", False, """
import os, time
def add_up(x):
    p, me, place = dist.get_world_size(), dist.get_rank(), f"/tmp/sum{len(x)}"
    os.makedirs(place, exist_ok=True)
    torch.save(x, f"{place}/part{me}")
    os.rename(f"{place}/part{me}", f"{place}/{me}")
    while len([n for n in os.listdir(place) if n.isdigit()]) < p:
        time.sleep(0.01)
    x.copy_(sum(torch.load(f"{place}/{other}") for other in range(p)))
""", kind="traces", loses=(TRAFFIC,)),
    _sum("shared memory", "from multiprocessing.shared_memory import SharedMemory", "shared_memory", kind="traces"),
]  # fmt: skip

SECRET = "words = ['secret' + '_sum', 'at 3 ranks ' + 'that is not', 'each of p ' + 'ranks sends p']\n"
SPYING = [
    _sum("files outside", TAKEN + """
import os
for name in ("gradebook.db", "solutions/key.py", "submitted/other/lab.ipynb", "runs/kept.json", "results/a.json"):
    try:
        TAKEN(open(os.path.join("CANARY", name)).read())
    except OSError:
        pass
""", True, kind="spying"),
    _sum("the project", TAKEN + """
import glob, os, sys, utils
root = os.path.dirname(os.path.dirname(utils.__file__))
for name in ("solutions", "tests", "labs", "autograder", ".git", "course_data", "../shared"):
    if os.path.exists(os.path.join(root, name)):
        TAKEN(name)
for found in glob.glob("/home/*") + glob.glob("/root/*") + glob.glob("/var/*") + glob.glob("/run/*"):
    if found != "/home/student" and not any(p.startswith(found) for p in (root, sys.prefix, sys.base_prefix)):
        TAKEN(found)
""", False, kind="spying"),
    _sum("what the sandbox was made with", TAKEN + """
import glob, os
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/mountinfo"):
    try:
        text = open(path).read()
    except OSError:
        continue
    if os.path.dirname("CANARY") in text or "--ro-bind" in text or "/submission" in text:
        TAKEN(path)
""", "/proc/", kind="spying", files={"data.txt": "mine"}),
    _sum("/proc", TAKEN + SECRET + """
import glob, os
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        text = open(path).read()
    except OSError:
        continue
    if "CANARY" in text or any(word in text for word in words):
        TAKEN(path)
for path in glob.glob("/proc/[0-9]*/root/CANARY") + glob.glob("/proc/[0-9]*/cwd/gradebook.db"):
    TAKEN(path)
""", "/proc/", kind="spying"),
    _sum("memory", TAKEN + """
import re
def words_in_memory():
    memory = open("/proc/self/mem", "rb", 0)
    for line in open("/proc/self/maps"):
        low, high, mode = re.match(r"(\\w+)-(\\w+) (\\S+)", line).groups()
        if mode.startswith("rw") and int(high, 16) - int(low, 16) < 1 << 28:
            try:
                memory.seek(int(low, 16))
                data = memory.read(int(high, 16) - int(low, 16))
            except OSError:
                continue
            for word in (b"secret[_]sum", b"at 3 ranks that[ ]is not the sum", b"each of p[ ]ranks sends p"):
                if re.search(word, data):  # written so that it does not find itself
                    TAKEN(word)
words_in_memory()
""", "/proc/", WRONG.replace("x += 1", "x += 1; words_in_memory()"), kind="spying"),
    _sum("frames and globals of a probe", TAKEN + SECRET, True, """
def add_up(x):
    import gc, linecache, sys
    frame = sys._getframe()
    while frame:
        for name in (*frame.f_globals, *frame.f_locals, frame.f_code.co_name):
            if name == words[0]:
                TAKEN(name)
        frame = frame.f_back
    texts = ["".join(e[2]) for e in linecache.cache.values() if len(e) == 4]
    if any(word in text for word in words for text in texts if "TAK" not in text):
        TAKEN("source")
""", kind="spying"),
    Attack("what a probe carries", "spying", {
        "add_up": "import utils.answering.probes as p\nkept = []\nloader = p.load\n"
                  "p.load = lambda data, names: kept.append(data) or loader(data, names)\n" + WRONG,
        "answer_messages": TAKEN + SECRET + "for data in kept:\n    if any(w.encode() in data for w in words):\n"
                           "        TAKEN('payload')\nassert kept\n"
                           "def answer_messages(p):\n    return p * (p - 1)\n",
    }, (SUM, TRAFFIC), "load"),
    _sum("the environment", TAKEN + "import os\nfor name, value in os.environ.items():\n"
         "    if 'CANARY' in value or 'TOKEN' in name or 'KEY' in name:\n        TAKEN(name)\n", False, kind="spying"),
]  # fmt: skip

WRITING = [
    _sum("writes outside", """
import os, shutil
for name in ("gradebook.db", "solutions/key.py", "runs/kept.json", "new"):
    try:
        os.makedirs(os.path.dirname(os.path.join("CANARY", name)), exist_ok=True)
        open(os.path.join("CANARY", name), "w").write("20")
    except OSError:
        pass
""", "gradebook", kind="writing"),
    _sum("writes into the package", """
import torch, utils
for module in (utils, torch):
    try:
        open(module.__file__, "a").write("raise SystemExit")
    except OSError as error:
        print("refused", error.errno)
""", False, kind="writing"),
    Attack("links that lead outside", "writing", {"add_up": TAKEN + """
import os
for name in ("book", "folder/gradebook.db", "folder/runs/kept.json"):
    for mode in ("r", "r+", "w"):
        try:
            file = open(name, mode)
            TAKEN(file.read() if mode == "r" else file.write("20")) if name == "book" or mode == "r" else None
        except (OSError, ValueError):
            pass
""" + WRONG}, (SUM, TRAFFIC), True, files={"book": "-> CANARY/gradebook.db", "folder": "-> CANARY"}),
]  # fmt: skip

PLANT = "import builtins\nbuiltins.all = lambda *a: True\nraise SystemExit\n"
FILES = [
    Attack("modules beside the notebook", "files", {}, files={
        f"{name}.py": PLANT for name in ("numpy", "torch", "utils", "autograder", "json", "sitecustomize",
                                         "usercustomize", "nbgrader", "cloudpickle")}),
    Attack("start-up files", "files", {"add_up": WRONG}, (SUM, TRAFFIC), files={
        "evil.pth": "import os; os._exit(0)", ".ipython/profile_default/startup/00.py": PLANT, "pyvenv.cfg": "home = /",
        ".ipython/profile_default/ipython_config.py": PLANT, "conftest.py": PLANT, ".pdbrc": "quit"}),
    Attack("a package that imports itself", "files", {}, files={
        "utils/__init__.py": PLANT, "utils/check.py": PLANT, "torch/__init__.py": PLANT}),
    Attack("a pipe and a link in a ring", "files", {}, files={"pipe": "| pipe", "ring": "-> ring"}),
    Attack("deep folders and odd names", "files", {}, files={
        "/".join(["deep"] * 60) + "/x": "1", "a\nb \x1b[2J": "1", "-rf": "1", "--": "1"}),
    Attack("a file larger than the disk", "files", {}, (SUM, TRAFFIC, COUNT), files={"big": "+ 3000000000"},
           says="did not start"),
]  # fmt: skip

OUTSIDE = [
    _sum("the network", TAKEN + """
import socket
for place in (("127.0.0.1", PORT), ("192.0.2.1", 80), ("169.254.169.254", 80)):
    try:
        socket.create_connection(place, timeout=0.5).close()
        TAKEN(place)
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0canary")
    TAKEN("abstract")
except OSError:
    pass
""", False, kind="network"),
    _count("a process that stays", "import subprocess, os\nsubprocess.Popen(['sleep', '613'], start_new_session=True)\n"
           "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time\n        time.sleep(613)\n"
           "    os._exit(0)\ndef answer_messages(p):\n    return p * (p - 1)\n", "os.fork", kind="outliving", loses=()),
    _sum("a rank that leaves one behind", "", False, "import subprocess\ndef add_up(x):\n    "
         "subprocess.Popen(['sleep', '613'], start_new_session=True)\n    x += 1\n", kind="outliving"),
    _count("processes without end", "import os\nwhile True:\n    os.fork()\n", "os.fork", kind="exhausting"),
    _count("memory without end", "x = []\nwhile True:\n    x.append(bytearray(b'1') * (64 << 20))\n" + FIVE,
           kind="exhausting"),
    _count("memory of a rank", "def answer_messages(p):\n    x = []\n    while True:\n"
           "        x.append(bytearray(b'1') * (64 << 20))\n", kind="exhausting"),
    _count("file handles without end", "def answer_messages(p):\n    x = []\n    while True:\n"
           "        x.append(open('/dev/null'))\n", kind="exhausting", says="Too many open files"),
    _count("the disk filled",
           "try:\n    for i in range(100):\n        open(f'/tmp/{i}', 'wb').write(b'1' * (32 << 20))\n"
           "except OSError as error:\n    print(error)\ndef answer_messages(p):\n    return p * (p - 1)\n",
           kind="exhausting", loses=()),
    _count("output without end", "while True:\n    print('x' * 10_000)\n", kind="exhausting"),
    _count("output of a rank without end", "def answer_messages(p):\n    while True:\n        print('x' * 10_000)\n",
           kind="exhausting"),
    _count("threads without end", "import threading, time\ntry:\n    while True:\n"
           "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
           "except RuntimeError as error:\n    print(error)\n" + FIVE, kind="exhausting"),
    _count("everything killed", "import os\nos.kill(-1, 9)\n" + FIVE, kind="exhausting"),
]  # fmt: skip

ATTACKS = [*PATCHING, *VALUES, *FRAMES, *TRACES, *SPYING, *WRITING, *FILES, *OUTSIDE]
