"""The first start: who may sign in, and with what."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from pytest_django import Settings

from toolhub.tenants.models import User

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("password", "word"),
    [("x", "short"), ("password123", "common"), ("admin@example.com", "similar"), ("  ", "empty")],
)
def test_a_weak_password_of_the_first_administrator_ends_the_start(
    password: str, word: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLHUB_BOOTSTRAP_PASSWORD", password)
    settings.TOOLHUB_BOOTSTRAP_PASSWORD = password.strip()

    with pytest.raises(SystemExit, match=f"TOOLHUB_BOOTSTRAP_PASSWORD .*{word}"):
        call_command("bootstrap")

    assert not User.objects.exists()
