"""For a server that runs beside the tests. No cache: the tests put its database back to an earlier state."""

from tests.settings import *  # noqa: F403

CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
