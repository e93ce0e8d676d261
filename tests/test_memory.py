"""What each process leaves alone, because it takes memory for as long as the service runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.processes

WEB = "import toolhub.asgi, toolhub.urls"
#: What `celery worker` does before it takes its first message.
WORKER = """
import toolhub.celery
toolhub.celery.app.loader.import_default_modules()
from celery.fixups.django import DjangoWorkerFixup
DjangoWorkerFixup(toolhub.celery.app).validate_models()
"""


@pytest.mark.parametrize(
    ("start", "unused"),
    [
        (WEB, ["openai", "sessions.loop.clients.transport"]),
        (WORKER, ["toolhub.urls", "allauth.account.views", "toolhub.tenants.people.views"]),
    ],
)
def test_a_process_imports_nothing_large_that_it_does_not_use(start: str, unused: list[str], tmp_path: Path) -> None:
    script = f"{start}\nimport sys\nprint(*sys.modules)"
    env = os.environ | {"TOOLHUB_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "toolhub.settings"}

    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=True)

    assert sorted(set(ran.stdout.split()) & set(unused)) == []
    assert "sessions.models.turns" in ran.stdout.split()
