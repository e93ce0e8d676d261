"""Full Python and shell commands, each in namespaces of the machine that bubblewrap makes: off unless the operator
allows them and they hold. Everybody else reaches them through the names of this file.

`zygote.py` is what runs inside; it is read as a file, imports nothing of the service, and nothing imports it.
"""

from capabilities.running.sandbox.bubblewrap.full import run as run_full
from capabilities.running.sandbox.bubblewrap.probe import why_no_full_python
from capabilities.running.sandbox.bubblewrap.shell import WORKSPACE, ShellResult, ShellUnavailable, run_shell
from capabilities.running.sandbox.bubblewrap.shell import why_unavailable as why_no_shell

__all__ = [
    "WORKSPACE",
    "ShellResult",
    "ShellUnavailable",
    "run_full",
    "run_shell",
    "why_no_full_python",
    "why_no_shell",
]
