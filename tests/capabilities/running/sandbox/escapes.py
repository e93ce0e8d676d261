"""Code that tries to get out, and code that tries to take everything. Each escape returns ESCAPED where it worked.

`@FILE@` is a file of this machine, `@PORT@` a port that somebody listens on, both of the test; the environment of the
test's process has a secret. Run without a sandbox, the escapes work, unless they say why they are not tried there.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What the environment of the service holds in the tests, and the file.
SECRET = "s3cr3t-of-the-service"


@dataclass(frozen=True)
class Escape:
    name: str
    code: str
    #: Whether it works in plain Python, so that the test of the tests can show that it is an escape.
    works_bare: bool = True


def tries(name: str, body: str, *, works_bare: bool = True, before: str = "") -> Escape:
    """`body` is an expression that is true where the escape worked, or lines that end in a `return`."""
    lines = body.strip().split("\n")
    if len(lines) == 1 and not lines[0].startswith(("return", "import", "from", "with", "for")):
        lines = [f"return 'ESCAPED' if ({lines[0]}) else 'nothing'"]
    return Escape(name, before + "def run():\n" + "".join(f"    {line}\n" for line in lines), works_bare)


ESCAPES = [
    # -- Files of the machine
    tries("open", "'s3cr3t' in open('@FILE@').read()"),
    tries("open passwd", "'root' in open('/etc/passwd').read()"),
    tries("open by a way round", "'root' in open('/tmp/../etc/passwd').read()"),
    tries("pathlib", "from pathlib import Path\nreturn 'ESCAPED' if 's3cr3t' in Path('@FILE@').read_text() else ''"),
    tries("os.open", "import os\nreturn 'ESCAPED' if os.read(os.open('@FILE@', 0), 9) else ''"),
    tries("io.FileIO", "import io\nreturn 'ESCAPED' if io.FileIO('@FILE@').read() else ''"),
    tries("codecs", "import codecs\nreturn 'ESCAPED' if codecs.open('@FILE@').read() else ''"),
    tries("linecache", "import linecache\nreturn 'ESCAPED' if linecache.getline('@FILE@', 1) else ''"),
    tries("shutil", "import shutil\nshutil.copy('@FILE@', '/tmp/c')\nreturn 'ESCAPED'"),
    tries(
        "a link in tmp",
        "import os\nos.symlink('@FILE@', '/tmp/link-of-a-test')\ntry:\n"
        "    return 'ESCAPED' if open('/tmp/link-of-a-test').read() else ''\nfinally:\n    os.remove('/tmp/link-of-a-test')",
    ),
    tries("sqlite", "import sqlite3\nsqlite3.connect('file:@FILE@?mode=ro', uri=True).execute('pragma schema_version')\n"
          "return 'ESCAPED'", works_bare=False),
    tries("listing", "import os\nreturn 'ESCAPED' if 'etc' in os.listdir('/') else ''"),
    tries("walking", "import os\nreturn 'ESCAPED' if any('passwd' in f for _, _, f in os.walk('/etc')) else ''"),
    tries("glob", "import glob\nreturn 'ESCAPED' if glob.glob('/etc/pass*') else ''"),
    tries("mmap", "import mmap\nf = open('@FILE@')\nreturn 'ESCAPED' if mmap.mmap(f.fileno(), 0, prot=1)[:] else ''"),
    tries("logging to a file", "import logging\nlogging.FileHandler('@FILE@').close()\nreturn 'ESCAPED'"),
    tries("writing", "open('@FILE@', 'a').write('')\nreturn 'ESCAPED'"),
    tries("writing into the library", "import os\nopen(os.path.dirname(os.__file__) + '/evil_of_a_test.py', 'w')\n"
          "return 'ESCAPED'", works_bare=False),
    tries("a device", "open('/dev/kmsg').close()\nreturn 'ESCAPED'", works_bare=False),
    tries("chroot", "import os\nos.chroot('/tmp')\nreturn 'ESCAPED'", works_bare=False),
    # -- The environment and the processes of the machine
    tries("environ", "import os\nreturn 'ESCAPED' if 's3cr3t' in str(dict(os.environ)) else ''"),
    tries("getenv", "import os\nreturn 'ESCAPED' if os.getenv('SECRET_OF_A_TEST') else ''"),
    tries("proc environ", "'s3cr3t' in open('/proc/self/environ').read()"),
    tries("proc of the parent", "import os\nreturn 'ESCAPED' if open(f'/proc/{os.getppid()}/environ').read() else ''"),
    tries("proc maps", "open('/proc/self/maps').read()"),
    tries("proc listing", "import os\nreturn 'ESCAPED' if '1' in os.listdir('/proc') else ''"),
    tries("killing the parent", "import os\nif os.getppid() == 0:\n    return ''\nos.kill(os.getppid(), 0)\n"
          "return 'ESCAPED'"),
    tries("killing everybody", "import os\nos.kill(-1, 0)\nreturn 'ESCAPED'"),
    tries("killing with ctypes", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).kill(-1, 0) == 0 else ''"),
    tries("becoming root", "import os\nos.setuid(0)\nreturn 'ESCAPED' if os.getuid() == 0 else ''", works_bare=False),
    # -- Programs, processes and threads
    tries("system", "import os\nreturn 'ESCAPED' if os.system('true') == 0 else ''"),
    tries("popen", "import os\nreturn 'ESCAPED' if os.popen('echo hi').read() else ''"),
    tries("subprocess", "import subprocess\nreturn 'ESCAPED' if subprocess.run(['true']).returncode == 0 else ''"),
    tries("spawn", "import os\nreturn 'ESCAPED' if os.posix_spawn('/bin/true', ['true'], {}) else ''"),
    tries("exec", "import os\nos.execv('/bin/echo', ['echo', '\"ESCAPED\"'])"),
    tries("fork", "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\nreturn 'ESCAPED'"),
    tries("fork with ctypes", "import ctypes, os\npid = ctypes.CDLL(None).fork()\nif pid == 0:\n    os._exit(0)\n"
          "return 'ESCAPED' if pid > 0 else ''"),
    tries("clone with ctypes", "import ctypes, os\npid = ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0)\n"
          "if pid == 0:\n    os._exit(0)\nreturn 'ESCAPED' if pid > 0 else ''", works_bare=False),
    tries("multiprocessing", "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=print)\n"
          "p.start()\np.join()\nreturn 'ESCAPED'"),
    tries("a thread", "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()\nreturn 'ESCAPED'"),
    tries("a pool", "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n"
          "    return 'ESCAPED' if pool.submit(int).result() == 0 else ''"),
    tries("memfd", "import os\nfile = os.memfd_create('x')\nreturn 'ESCAPED'"),
    tries("shared memory", "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=9).unlink()\n"
          "return 'ESCAPED'"),
    tries("ptrace", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 else ''"),
    tries("mount", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0 "
          "else ''", works_bare=False),
    tries("a namespace", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).unshare(0x10000000) == 0 else ''"),
    tries("a namespace of mounts", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).unshare(0x20000) == 0 else ''",
          works_bare=False),
    tries("a keyring", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).syscall(250, 0, -3, 1) > 0 else ''",
          works_bare=False),
    tries("more memory than allowed", "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (500, 500))\n"
          "return 'ESCAPED'"),
    # -- The network
    tries("socket", "import socket\nsocket.create_connection(('127.0.0.1', @PORT@), 2).close()\nreturn 'ESCAPED'"),
    tries("socket with ctypes", "import ctypes\nreturn 'ESCAPED' if ctypes.CDLL(None).socket(2, 1, 0) >= 0 else ''"),
    tries("a unix socket", "import socket\nsocket.socket(socket.AF_UNIX).close()\nreturn 'ESCAPED'"),
    tries("urllib", "import urllib.request\nreturn 'ESCAPED' if urllib.request.urlopen('http://127.0.0.1:@PORT@/', timeout=2) "
          "else ''"),
    tries("http.client", "import http.client\nc = http.client.HTTPConnection('127.0.0.1', @PORT@, timeout=2)\n"
          "c.request('GET', '/')\nreturn 'ESCAPED'"),
    tries("asyncio", "import asyncio\nasync def go():\n    await asyncio.open_connection('127.0.0.1', @PORT@)\n"
          "    return 'ESCAPED'\nreturn asyncio.run(go())"),
    tries("names", "import socket\nreturn 'ESCAPED' if socket.getaddrinfo('localhost', 80) else ''"),
    # -- The service, and what is around the code
    tries("django", "import django\nreturn 'ESCAPED'"),
    tries("the settings", "import sys\nsys.path.insert(0, '@ROOT@')\nimport toolhub.settings\nreturn 'ESCAPED'"),
    tries("a package", "import sys\nsys.path.append('@PACKAGES@')\nimport httpx2\nreturn 'ESCAPED'"),
    tries("the sandbox itself", "import capabilities.running.sandbox\nreturn 'ESCAPED'", works_bare=False),
    tries("subclasses", "for one in ().__class__.__base__.__subclasses__():\n    if one.__name__ == '_wrap_close':\n"
          "        env = one.__init__.__globals__['environ']\n        return 'ESCAPED' if 's3cr3t' in str(dict(env)) else ''"),
    tries("globals", "import os\nreturn 'ESCAPED' if 's3cr3t' in str(dict(run.__globals__['__builtins__']['__import__']"
          "('os').environ if isinstance(run.__globals__['__builtins__'], dict) else os.environ)) else ''"),
    tries("frames", "import sys\nframe, found = sys._getframe(), ''\nwhile frame:\n    os = frame.f_globals.get('os')\n"
          "    found += str(dict(os.environ)) if os else ''\n    frame = frame.f_back\n"
          "return 'ESCAPED' if 's3cr3t' in found else ''", before="import os\n"),
    tries("a traceback", "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    frame = error.__traceback__.tb_frame\n"
          "    return 'ESCAPED' if 's3cr3t' in str(dict(frame.f_globals['os'].environ)) else ''", before="import os\n"),
    tries("a generator's frame", "g = (x for x in [1])\nreturn 'ESCAPED' if 's3cr3t' in "
          "str(dict(g.gi_frame.f_globals['os'].environ)) else ''", before="import os\n"),
    tries("format", "'s3cr3t' in '{0.__globals__[os].environ}'.format(run)", before="import os\n"),
    tries("format of an error", "try:\n    raise ValueError('x')\nexcept ValueError as error:\n    return 'ESCAPED' if 's3cr3t' "
          "in '{0.__traceback__.tb_frame.f_globals[os].environ}'.format(error) else ''", before="import os\n"),
    tries("gc", "import gc\nreturn 'ESCAPED' if any('s3cr3t' in str(one) for one in gc.get_objects() "
          "if type(one).__name__ == '_Environ') else ''", before="import os\n"),
    tries("inspect", "import inspect\nreturn 'ESCAPED' if 's3cr3t' in str(inspect.stack()[0].frame.f_globals['os'].environ) "
          "else ''", before="import os\n"),
    tries("settrace", "import sys\nseen = []\nsys.settrace(lambda f, e, a: seen.append(f.f_globals.get('os')))\nint()\n"
          "(lambda: 0)()\nsys.settrace(None)\nreturn 'ESCAPED' if any('s3cr3t' in str(o.environ) for o in seen if o) else ''",
          before="import os\n"),
    tries("sys.modules", "import sys\nreturn 'ESCAPED' if 's3cr3t' in str(dict(sys.modules['os'].environ)) else ''"),
    tries("import by name", "import importlib\nreturn 'ESCAPED' if importlib.import_module('subprocess').getoutput('echo a') "
          "== 'a' else ''"),
    tries("__import__", "'s3cr3t' in str(dict(__import__('os').environ))"),
    tries("eval", "'s3cr3t' in eval(\"str(dict(__import__('os').environ))\")"),
    tries("exec of code", "names = {}\nexec(\"import os\\nfound = str(dict(os.environ))\", names)\n"
          "return 'ESCAPED' if 's3cr3t' in names['found'] else ''"),
    tries("builtins", "import builtins\nreturn 'ESCAPED' if builtins.open('@FILE@').read() else ''"),
    tries("pickle", "import pickle\nreturn 'ESCAPED' if pickle.loads(b\"cos\\nsystem\\n(S'true'\\ntR.\") == 0 else ''"),
    tries("marshal", "import marshal, types\ncode = compile('import os; found = str(dict(os.environ))', 'x', 'exec')\nnames = {}\n"
          "types.FunctionType(marshal.loads(marshal.dumps(code)), names)()\n"
          "return 'ESCAPED' if 's3cr3t' in names['found'] else ''"),
    # What is sent by the runner's own socket is read as what the code asks and says, which it may say anyhow.
    tries("the runner's socket", "import os\nfor file in range(3, 40):\n    try:\n        os.write(file, b'{\"call\": \"eval\", "
          "\"arguments\": [\"open(1)\"]}\\n{\"call\": \"__class__\", \"arguments\": []}\\n')\n    except OSError:\n        pass\n"
          "return ''", works_bare=False),
]  # fmt: skip


@dataclass(frozen=True)
class Bomb:
    name: str
    code: str
    #: Only in CPython: the other runtime has no such thing at all.
    only_full: bool = False


BOMBS = [
    Bomb("a loop", "def run():\n    while True:\n        pass\n"),
    Bomb("a loop that catches all", "def run():\n    while True:\n        try:\n            while True:\n                pass\n"
         "        except BaseException:\n            pass\n"),
    Bomb("a loop at load", "while True:\n    pass\n\ndef run():\n    return 1\n"),
    Bomb("a long sum", "def run():\n    return sum(range(10 ** 13))\n"),
    Bomb("a long power", "def run():\n    return len(str(10 ** (10 ** 9)))\n"),
    Bomb("a sleep", "import time\n\ndef run():\n    time.sleep(600)\n    while True:\n        time.sleep(600)\n"),
    Bomb("a list", "def run():\n    return len([0] * 10 ** 10)\n"),
    Bomb("a growing list", "def run():\n    found = []\n    while True:\n        found.append('x' * 10_000)\n"),
    Bomb("a growing text", "def run():\n    text = 'x'\n    while True:\n        text += text\n"),
    Bomb("a wide format", "def run():\n    return len(f'{1:>{10 ** 10}}')\n"),
    Bomb("a join", "def run():\n    return len(','.join(['x'] * 10 ** 10))\n"),
    Bomb("a shift", "def run():\n    n = 1\n    while True:\n        n = n << (n.bit_length() if False else 10 ** 7)\n"),
    Bomb("recursion", "def run():\n    return run()\n"),
    Bomb("recursion that catches", "def go():\n    try:\n        go()\n    finally:\n        go()\n\ndef run():\n    go()\n"),
    Bomb("a deep list", "def run():\n    found = []\n    for _ in range(100_000):\n        found = [found]\n    return found\n"),
    Bomb("brackets", "def run():\n    return eval('(' * 100_000 + ')' * 100_000)\n"),
    Bomb("a pattern", "import re\n\ndef run():\n    return re.match('(a+)+$', 'a' * 40 + 'b') or [1] * 10 ** 10\n"),
    Bomb("a print without end", "def run():\n    while True:\n        print('x' * 10_000)\n"),
    Bomb("a large result", "def run():\n    return 'x' * 50_000_000\n"),
    Bomb("many values", "def run():\n    return [[]] * 450_000\n"),
    Bomb("not a number", "def run():\n    return float('nan')\n"),
    Bomb("requests without end", "def run():\n    while True:\n        try:\n            http_get('https://api.example.com/')\n"
         "        except BaseException:\n            pass\n"),
    Bomb("times without end", "def run():\n    while True:\n        try:\n            now_in('UTC')\n        except ValueError:\n"
         "            pass\n"),
    Bomb("deep JSON", "import json\n\ndef run():\n    return json.loads('[' * 1_000_000)\n"),
    Bomb("an endless iterator", "import itertools\n\ndef run():\n    return sum(itertools.count())\n"),
    Bomb("forks", "import os\n\ndef run():\n    while True:\n        os.fork()\n"),
    Bomb("forks that catch", "import os\n\ndef run():\n    while True:\n        try:\n            os.fork()\n"
         "        except BaseException:\n            pass\n", only_full=True),
    Bomb("threads", "import threading\n\ndef run():\n    while True:\n        threading.Thread(target=run).start()\n"),
    Bomb("files", "def run():\n    for number in range(100_000):\n        open(f'/tmp/{number}', 'w').close()\n"),
    Bomb("a large file", "def run():\n    with open('/tmp/x', 'wb') as file:\n        while True:\n"
         "            file.write(bytes(1_000_000))\n"),
    Bomb("open files", "def run():\n    kept = []\n    while True:\n        kept.append(open('/dev/null'))\n"),
    Bomb("mapped memory", "import mmap\n\ndef run():\n    kept = []\n    while True:\n        kept.append(mmap.mmap(-1, 50_000_000))\n"),
    Bomb("a crash", "import ctypes\n\ndef run():\n    ctypes.string_at(0)\n"),
    Bomb("an abort", "import os\n\ndef run():\n    os.abort()\n"),
    Bomb("the end of the process", "import os\n\ndef run():\n    os._exit(0)\n"),
    Bomb("sys.exit", "import sys\n\ndef run():\n    sys.exit(0)\n"),
    Bomb("killing itself", "import os\n\ndef run():\n    os.kill(os.getpid(), 9)\n    os.kill(0, 9)\n    os.kill(-1, 9)\n"),
    Bomb("deaf to signals", "import signal\n\ndef run():\n    for number in range(1, 64):\n        try:\n"
         "            signal.signal(number, signal.SIG_IGN)\n        except (OSError, ValueError):\n            pass\n"
         "    while True:\n        pass\n"),
    Bomb("a socket full of nothing", "import os\n\ndef run():\n    while True:\n        for file in range(3, 20):\n            try:\n"
         "                os.write(file, b'x' * 60_000)\n            except OSError:\n                pass\n", only_full=True),
    Bomb("a request that is no request", "import os\n\ndef run():\n    for file in range(3, 20):\n        try:\n"
         "            os.write(file, b'[' * 100_000 + b'\\n')\n        except OSError:\n            pass\n    while True:\n"
         "        pass\n", only_full=True),
]  # fmt: skip
