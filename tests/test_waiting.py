"""Who waits holds no connection to the database.

On PostgreSQL a thread holds one while a statement runs, and from the first statement of a transaction to its end
(tests/test_postgres_connections.py). So nothing may wait inside of a transaction: neither for a lock that others hold
while they ask the database, nor for a thread, a process, a model, a tool, or the network. This walks every transaction
of the service, and every call in it, to what waits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.call_graph import Function, Graph, body_of, graph, name_of

#: Methods and functions of Python and of libraries that wait, by their last name.
WAITS = {
    *("acquire", "wait", "wait_for", "result", "communicate", "sleep", "getresponse", "urlopen", "create_connection"),
    *("run_until_complete", "run_coroutine_threadsafe", "async_to_sync", "check_output", "check_call", "Popen"),
    *("publish", "send_task", "apply_async", "llen", "ping", "getaddrinfo", "sendmail", "send_message"),
}
#: Waits that are no waits for others: by function, with the reason.
ALLOWED = {"toolhub.embedded.sqlite3.base.Cursor.execute": "SQLite's own wait for another process that writes."}


def is_wait(call: ast.Call) -> bool:
    name = name_of(call.func)
    if name == "get" and any(each.arg == "timeout" for each in call.keywords):
        return True  # of a queue
    if name == "run" and isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "subprocess":
        return True
    if name == "join":  # of a thread, not of a text or a path
        return isinstance(call.func, ast.Attribute) and "thread" in name_of(call.func.value).lower()
    return name in WAITS


def locks(node: ast.AST) -> Iterator[ast.With]:
    """Blocks that hold a lock."""
    for found in body_of(node):
        if isinstance(found, ast.With) and any(is_lock(item.context_expr) for item in found.items):
            yield found


def is_lock(node: ast.AST) -> bool:
    return any(word in name_of(node).lower() for word in ("lock", "mutex", "choosing", "making"))


def asks_database(node: ast.AST) -> bool:
    return name_of(node) in ("objects", "cursor", "atomic", "rows", "instances")


class Walk:
    """What a function comes to, with the way there; each is looked at once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[str, list[str]] = {}
        self.long: dict[str, bool] = {}

    def waits_in(self, node: ast.AST, at: Function) -> Iterator[str]:
        """Each wait that running this node comes to, as the way to it."""
        for found in body_of(node):
            if isinstance(found, ast.Call):
                called = self.graph.called(found, at)
                if is_wait(found):
                    yield f"{at}: {ast.unparse(found.func)}"
                for each in called:
                    if isinstance(each.node, ast.AsyncFunctionDef) and not isinstance(at.node, ast.AsyncFunctionDef):
                        continue  # this only makes the coroutine
                    yield from (f"{at} > {way}" for way in self.waits_of(each))
        for lock in locks(node):
            if any(self.is_long(each, at) for each in lock.body):
                yield f"{at}: with {ast.unparse(lock.items[0].context_expr)}"

    def waits_of(self, function: Function) -> list[str]:
        name = str(function)
        if name in ALLOWED or name in self.known:
            return self.known.get(name, [])
        self.known[name] = []  # it calls itself: nothing more comes of that
        self.known[name] = list(self.waits_in(function.node, function))[:1]
        return self.known[name]

    def is_long(self, node: ast.AST, at: Function) -> bool:
        """Whether it asks the database or waits: then who waits for its lock waits for that too."""
        for found in [node, *body_of(node)]:
            if asks_database(found) or (isinstance(found, ast.Call) and is_wait(found)):
                return True
            if isinstance(found, ast.Call) and any(
                self.is_long_function(each) for each in self.graph.called(found, at)
            ):
                return True
        return False

    def is_long_function(self, function: Function) -> bool:
        name = str(function)
        if name not in self.long:
            self.long[name] = False  # it calls itself: nothing more comes of that
            self.long[name] = self.is_long(function.node, function)
        return self.long[name]


def transactions(function: Function, makers: set[str], graph: Graph) -> Iterator[ast.AST]:
    """The blocks of a function that are transactions; the whole of it where it is decorated as one."""
    decorators = getattr(function.node, "decorator_list", [])
    if any("atomic" in ast.unparse(each) for each in decorators):
        yield function.node
    for found in body_of(function.node):
        if isinstance(found, ast.With) and any(
            opens(item.context_expr, function, makers, graph) for item in found.items
        ):
            yield ast.Module(body=found.body, type_ignores=[])


def opens(node: ast.AST, at: Function, makers: set[str], graph: Graph) -> bool:
    """Whether this is `atomic()`, or a context manager of ours that yields inside of it."""
    if not isinstance(node, ast.Call):
        return False
    return name_of(node.func) == "atomic" or any(str(each) in makers for each in graph.called(node, at))


def makers_in(graph: Graph) -> set[str]:
    """Context managers of ours that yield inside of a transaction."""
    found = set[str]()
    for function in graph.functions.values():
        if "atomic" in graph.texts[function.module] and any(
            "contextmanager" in ast.unparse(each) for each in getattr(function.node, "decorator_list", [])
        ):
            for block in transactions(function, set(), graph):
                if any(isinstance(each, ast.Yield) for each in ast.walk(block)):
                    found.add(str(function))
    return found


def waits_in_transactions(graph: Graph) -> list[str]:
    makers, walk = makers_in(graph), Walk(graph)
    words = {"atomic", *(each.rpartition(".")[2] for each in makers)}
    return sorted(
        way
        for function in graph.functions.values()
        if any(word in graph.texts[function.module] for word in words)
        for block in transactions(function, makers, graph)
        for way in walk.waits_in(block, function)
    )


def test_nothing_waits_inside_of_a_transaction() -> None:
    assert waits_in_transactions(graph()) == []


#: A module of another room, which waits in every way that is looked for.
AROUND = """
import subprocess, threading, time
from contextlib import contextmanager
from django.db import transaction
_lock = threading.Lock()
def slow(): time.sleep(1)
def deep(): return slow()
def quick(): return 1
def locked():
    with _lock:
        Row.objects.get()
class Tool:
    def start_it(self): self.thread.join()
    def run(self): return self.start_it()
@contextmanager
def taken():
    with transaction.atomic():
        yield
async def later(): time.sleep(1)
"""


@pytest.mark.parametrize(
    "body",
    [
        "with transaction.atomic(): time.sleep(1)",
        "with transaction.atomic(): around.deep()",
        "with transaction.atomic(), open('x'): slow()",
        "with transaction.atomic():\n    for each in rows:\n        tool.start_it()",
        "with transaction.atomic(): around.locked()",
        "with around.taken(): slow()",
        "with transaction.atomic(): queue.get(timeout=1)",
        "with transaction.atomic(): future.result()",
        "with transaction.atomic(): subprocess.run(['x'])",
        "with transaction.atomic(): return [slow() for each in rows]",
        "with transaction.atomic():\n    with around.taken():\n        self.stopped.wait()",
    ],
)
def test_each_kind_of_wait_is_found(body: str) -> None:
    assert len(waits_in_transactions(made_of(body))) >= 1


@pytest.mark.parametrize(
    "body",
    [
        "with transaction.atomic():\n    around.quick()\nslow()",
        "with transaction.atomic(): transaction.on_commit(lambda: slow())",
        "with transaction.atomic(): transaction.on_commit(slow)",
        "with transaction.atomic(): return ', '.join(rows)",
        "with transaction.atomic(): pool.submit(slow)",
        "with transaction.atomic(): return around.later()",
    ],
)
def test_code_that_runs_later_or_elsewhere_does_not_count_as_a_wait(body: str) -> None:
    assert waits_in_transactions(made_of(body)) == []


def made_of(body: str) -> Graph:
    head = "import around, subprocess, time\nfrom around import slow\nfrom django.db import transaction\n"
    indented = body.replace("\n", "\n    ")
    found = Graph()
    text = f"{head}def work(self, rows, tool, queue, future, pool):\n    {indented}\n"
    for name, source in (("around", AROUND), ("here", text)):
        found.add(name, ast.parse(source), source)
    return found
