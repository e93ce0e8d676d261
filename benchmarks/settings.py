"""The service's own settings, and one more app: a category of tools that change a world outside."""

from toolhub.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.outside"]  # noqa: F405
