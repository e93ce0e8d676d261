"""The child process: limits itself, reads one JSON object, runs one job on it, writes one JSON object.

Started by path with `python -I -S`, so that it begins in milliseconds and nothing of the parent's is imported:
`child.py JOB MEMORY_BYTES CPU_SECONDS FOLDER...`, where the folders are added to the import path.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Run the job that the command line names, with the arguments on standard input, and write its answer as JSON."""
    job, memory, seconds, *folders = sys.argv[1:]
    _limit(int(memory), int(seconds))
    sys.path += folders
    run = import_module(f"capabilities.common.confined_jobs.{job}").run
    arguments = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        answer = {"result": run(**arguments)}
        text = json.dumps(answer)
    except (MemoryError, RecursionError):
        text = '{"too_complex": true}'
    sys.stdout.write(text)
    sys.stdout.flush()
    # Freeing a deep structure can overflow the stack as well; there is nothing left to tidy.
    os._exit(0)


def _limit(memory: int, seconds: int) -> None:
    """Before anything that a member wrote is read. Neighbours come first for the processor. At the end of its processor
    time SIGXCPU ends it, which tells that from every other end."""
    os.nice(10)
    for name, limit in (
        ("RLIMIT_AS", memory),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_NPROC", 0),
    ):
        if hasattr(resource, name):
            limit_id = getattr(resource, name)
            hard = resource.getrlimit(limit_id)[1]
            bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            grace = 1 if name == "RLIMIT_CPU" and bound != hard else 0
            resource.setrlimit(limit_id, (bound, bound + grace))


if __name__ == "__main__":
    main()
