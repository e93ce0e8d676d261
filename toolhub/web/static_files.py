"""Static files as browsers get them: compressed, with a digest of their content in the name, kept for ever.

`collectstatic` writes them, at the build of an image or at a start of `manage.py up` whose sources have changed. Where
nobody did, as in tests, they are served from where they are. The web server sends them before Django sees the request.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from whitenoise.responders import StaticFile

from toolhub.web.intake import App, Receive, Scope, Send

#: File in STATIC_ROOT that holds the digest of what it was made from.
MADE_FROM = "made-from"


#: Bytes of a file that are read and sent at once.
CHUNK = 64 * 1024
#: Headers of a request that a file's answer depends on, as WhiteNoise wants them.
ASKED = {
    b"accept-encoding": "HTTP_ACCEPT_ENCODING",
    b"if-none-match": "HTTP_IF_NONE_MATCH",
    b"if-modified-since": "HTTP_IF_MODIFIED_SINCE",
    b"range": "HTTP_RANGE",
}


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
    """Return a hash of each file's name, size and time."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list(StaticFiles.ignore_patterns):
            found = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class ServedFiles:
    """ASGI: answers GET and HEAD for the files that WhiteNoise knows, and leaves every other request to `app`."""

    def __init__(self, app: App) -> None:
        # Imported here: WhiteNoise reads the settings, and this module is loaded with the apps.
        from whitenoise.middleware import WhiteNoiseMiddleware  # noqa: PLC0415 -- app ready

        self.app = app
        self.files = WhiteNoiseMiddleware(_no_view)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = self.file_of(scope) if scope["type"] == "http" else None
        if file is None:
            await self.app(scope, receive, send)
        else:
            await send_file(file, scope, send)

    def file_of(self, scope: Scope) -> StaticFile | None:
        """The file that this path names, None where it names none."""
        path = scope["path"]
        if not path.startswith(self.files.static_prefix):
            return None
        found: StaticFile | None = self.files.find_file(path) if self.files.autorefresh else self.files.files.get(path)
        return found


async def send_file(file: StaticFile, scope: Scope, send: Send) -> None:
    """Answer the request with this file, compressed or in part as its headers ask."""
    given = {ASKED[name]: value.decode("latin-1") for name, value in scope["headers"] if name in ASKED}
    answer = file.get_response(scope["method"], given)
    headers = [(name.lower().encode(), str(value).encode("latin-1")) for name, value in answer.headers]
    headers.append((b"x-content-type-options", b"nosniff"))
    await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
    if answer.file is not None:
        with answer.file as opened:
            while part := opened.read(CHUNK):
                await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


def _no_view(request: Any) -> Any:
    raise NotImplementedError("Only the table of files is used.")
