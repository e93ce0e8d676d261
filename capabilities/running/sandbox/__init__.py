"""Sandbox for Python that members and agents wrote, and for commands, where they can reach nothing. Everybody else
reaches it through the names of this file.

Knows code, arguments, limits and host functions. Must not know organisations, tools or rows.

    run_python        one call, in `monty` (an interpreter of a part of Python) or in `full` (CPython in namespaces)
    check_python      all that keeps code from being a tool, with what to write instead
    describe_runtime  what of Python there is, for whoever writes code
    isolation         which of the two this machine can keep apart; the other refuses to run
    run_shell         one command, in the namespaces of `full`
"""

from capabilities.running.sandbox.bubblewrap import WORKSPACE, ShellUnavailable, run_shell, why_no_shell
from capabilities.running.sandbox.checking import check_python
from capabilities.running.sandbox.describing import describe_runtime
from capabilities.running.sandbox.entry import CONTEXT, takes_context
from capabilities.running.sandbox.http import guarded_http
from capabilities.running.sandbox.isolation import Isolation, isolation
from capabilities.running.sandbox.running import run_python
from capabilities.running.sandbox.values import (
    MAX_CODE,
    RUNTIMES,
    HostError,
    HostFunctions,
    HttpAnswer,
    Limits,
    Problem,
    RunError,
    SandboxResult,
)

__all__ = [
    "CONTEXT",
    "MAX_CODE",
    "RUNTIMES",
    "WORKSPACE",
    "HostError",
    "HostFunctions",
    "HttpAnswer",
    "Isolation",
    "Limits",
    "Problem",
    "RunError",
    "SandboxResult",
    "ShellUnavailable",
    "check_python",
    "describe_runtime",
    "guarded_http",
    "isolation",
    "run_python",
    "run_shell",
    "takes_context",
    "why_no_shell",
]
