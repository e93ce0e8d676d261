"""The service's own settings, and one more app: 128 tools, and counts of the statements of each process."""

from toolhub.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.many_tools"]  # noqa: F405
