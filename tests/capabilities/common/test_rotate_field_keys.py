"""Every stored secret can be encrypted anew with the first key, and is then read without the older ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command

from capabilities.management.commands.rotate_field_keys import encrypted_fields
from capabilities.models import Provider, StoredCredential, StoredSecret
from tests.capabilities.running.credentials.test_signing import make_credential, make_secret
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_secrets_are_read_with_the_new_key_alone(
    acme: Organisation, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.TOOLHUB_FIELD_KEYS = [Fernet.generate_key().decode()]
    credential = make_credential(acme, client_secret="of-the-client")
    make_secret(credential, values={"token": "kept"})
    with organisation_scope(acme):
        Provider.objects.create(organisation=acme, slug="p", name="P", api_key="sk-kept")
    newer = Fernet.generate_key().decode()
    settings.TOOLHUB_FIELD_KEYS = [newer, *settings.TOOLHUB_FIELD_KEYS]

    call_command("rotate_field_keys")

    settings.TOOLHUB_FIELD_KEYS = [newer]
    assert capsys.readouterr().out.startswith("3 secrets ")
    with organisation_scope(acme):
        assert json.loads(StoredSecret.objects.get().values_json) == {"token": "kept"}
        assert StoredCredential.objects.get().client_secret == "of-the-client"
        assert Provider.objects.get().api_key == "sk-kept"


def test_what_no_key_reads_is_left_and_told(
    acme: Organisation, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make_secret(make_credential(acme))
    settings.TOOLHUB_FIELD_KEYS = [Fernet.generate_key().decode()]

    call_command("rotate_field_keys")

    assert "1 cannot be read with any key" in capsys.readouterr().err


def test_the_secrets_of_credentials_are_among_them() -> None:
    found = {f"{model.__name__}.{name}" for model, name in encrypted_fields()}

    assert found >= {"StoredSecret.values_json", "StoredCredential.client_secret", "OAuthSignIn.verifier"}
