"""Static files as browsers get them: compressed, with a digest of their content in the name, kept for ever.

`collectstatic` writes them, at the build of an image or at a start of `manage.py up` whose sources have changed. Where
nobody did, as in tests, they are served from where they are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

#: File in STATIC_ROOT that holds the digest of what it was made from.
MADE_FROM = "made-from"


class StaticFiles(StaticFilesConfig):
    #: Parts of the packages that no page of ours names, and notes on our own.
    ignore_patterns = [*StaticFilesConfig.ignore_patterns, "rest_framework", "redoc", "django_htmx", "*.sh", "*.md"]  # noqa: RUF012 -- as Django has it


def collect_if_changed() -> bool:
    """Collect the static files into STATIC_ROOT, unless they are there as they are now; whether they were collected."""
    assert settings.STATIC_ROOT is not None
    root, digest = Path(settings.STATIC_ROOT), digest_of_sources()
    made_from = root / MADE_FROM
    if made_from.is_file() and made_from.read_text() == digest:
        return False
    call_command("collectstatic", verbosity=0, interactive=False, clear=True)
    made_from.write_text(digest)
    return True


def digest_of_sources() -> str:
    """Of each file's name, size and time."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list(StaticFiles.ignore_patterns):
            found = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
