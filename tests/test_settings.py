"""The settings as a start of the service reads them: in a process of its own, from the environment alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.paths import ROOT

#: Everything that a production set-up must say.
PRODUCTION = {
    "TOOLHUB_ENV": "production",
    "SECRET_KEY": "0123456789" * 5,
    "TOOLHUB_FIELD_KEYS": Fernet.generate_key().decode(),
    "ALLOWED_HOSTS": "toolhub.example.com",
    "REDIS_URL": "redis://broker:6379/0",
    "DATABASE_URL": "postgres://toolhub:secret@database:5432/toolhub",
}
SHOW = """
import json, sys
from toolhub import settings
print(json.dumps({name: getattr(settings, name) for name in sys.argv[1:]}, default=str))
"""


def read_settings(env: dict[str, str], *names: str) -> subprocess.CompletedProcess[str]:
    system = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", SHOW, *names], cwd=ROOT, env=system | env, capture_output=True, text=True, check=False
    )


def values(env: dict[str, str], *names: str) -> dict[str, object]:
    done = read_settings(env, *names)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def refusal(env: dict[str, str]) -> str:
    done = read_settings(env)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_nothing_needs_to_be_said_for_one_machine(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    names = ("PORT", "HOST", "DEBUG", "TOOLHUB_ENV", "REDIS_URL", "CELERY_BROKER_URL")

    found = values({"TOOLHUB_DATA_DIR": str(data_dir)}, *names)

    assert found == {
        "PORT": 8000,
        "HOST": "127.0.0.1",
        "DEBUG": False,
        "TOOLHUB_ENV": "embedded",
        "REDIS_URL": "",
        "CELERY_BROKER_URL": "memory://",
    }


def test_port_and_data_folder_move_everything(tmp_path: Path) -> None:
    env = {"PORT": "8765", "TOOLHUB_DATA_DIR": str(tmp_path / "däta with space, 100%? #1")}

    found = values(env, "PORT", "DATA_DIR", "DATABASES", "WORKSPACES_DIR")

    assert found["PORT"] == 8765
    assert found["DATA_DIR"] == env["TOOLHUB_DATA_DIR"]
    assert found["DATABASES"]["default"]["NAME"] == f"{env['TOOLHUB_DATA_DIR']}/toolhub.sqlite3"  # type: ignore[index]
    assert found["WORKSPACES_DIR"] == f"{env['TOOLHUB_DATA_DIR']}/workspaces"


def test_secrets_are_made_once_for_one_machine(tmp_path: Path) -> None:
    env = {"TOOLHUB_DATA_DIR": str(tmp_path)}

    first = values(env, "SECRET_KEY", "TOOLHUB_FIELD_KEYS")

    assert values(env, "SECRET_KEY", "TOOLHUB_FIELD_KEYS") == first


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PORT", "eighty", "PORT must be a whole number from 1 to 65535; it is 'eighty'."),
        ("PORT", "70000", "PORT must be a whole number from 1 to 65535; it is 70000."),
        ("DEBUG", "maybe", "DEBUG must be true or false; it is 'maybe'."),
        ("TOOLHUB_ENV", "prod", "TOOLHUB_ENV must be one of embedded, production; it is 'prod'."),
        ("TOOLHUB_RESULT_SHARE", "2", "TOOLHUB_RESULT_SHARE must be a number from 0.01 to 1.0; it is 2."),
        ("TOOLHUB_LOG_LEVEL", "loud", "TOOLHUB_LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR; it is 'loud'."),
        ("TOOLHUB_FIELD_KEYS", "secret", "TOOLHUB_FIELD_KEYS must be Fernet keys, comma-separated."),
        *(
            (
                "TOOLHUB_PRIVATE_HOSTS",
                f"localhost, {entry}",
                (
                    "TOOLHUB_PRIVATE_HOSTS must be names, addresses or networks such as localhost, 10.1.0.0/16 or "
                    f"ollama.internal:11434, comma-separated; it has {entry!r}."
                ),
            )
            for entry in ("http://10.0.0.5", "10.0.0.0/99", "my host", "localhost:99999", "localhost:", "a..b")
        ),
        ("REDIS_URL", "broker:6379", "REDIS_URL must be redis://..., rediss://... or unix://path."),
        (
            "TOOLHUB_BOOTSTRAP_TOKEN",
            "t" * 31,
            "TOOLHUB_BOOTSTRAP_TOKEN must have at least 32 characters; it has 31.",
        ),
    ],
)
def test_a_wrong_value_stops_the_start_with_one_sentence(tmp_path: Path, name: str, value: str, sentence: str) -> None:
    assert refusal({"TOOLHUB_DATA_DIR": str(tmp_path), name: value}) == f"toolhub cannot start: {sentence}\n"


@pytest.mark.parametrize("url", ["toolhub", "mysql://me:secret@host/name", "postgres://me:secret@host:port/name"])
def test_a_database_that_is_not_meant_is_refused_without_repeating_its_password(tmp_path: Path, url: str) -> None:
    sentence = refusal({"TOOLHUB_DATA_DIR": str(tmp_path), "DATABASE_URL": url})

    assert "DATABASE_URL must be postgres://" in sentence
    assert "secret" not in sentence
    assert sentence.count("\n") == 1


def test_a_bootstrap_token_of_32_characters_is_long_enough(tmp_path: Path) -> None:
    env = {"TOOLHUB_DATA_DIR": str(tmp_path), "TOOLHUB_BOOTSTRAP_TOKEN": "t" * 32}

    assert values(env, "TOOLHUB_BOOTSTRAP_TOKEN") == {"TOOLHUB_BOOTSTRAP_TOKEN": "t" * 32}


def test_production_with_everything_said_starts_and_writes_no_secret(tmp_path: Path) -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "DEBUG")

    found = values(PRODUCTION | {"TOOLHUB_DATA_DIR": str(tmp_path / "data")}, *names)

    assert found == {"SESSION_COOKIE_SECURE": True, "CSRF_COOKIE_SECURE": True, "DEBUG": False}
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY must be set in production."),
        ({"SECRET_KEY": "0123456789" * 4}, "SECRET_KEY must be at least 50 random characters in production."),
        ({"SECRET_KEY": "changeme" * 9}, "SECRET_KEY must be at least 50 random characters in production."),
        ({"TOOLHUB_FIELD_KEYS": ""}, "TOOLHUB_FIELD_KEYS must be set in production."),
        ({"DEBUG": "1"}, "DEBUG must be off in production."),
        ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS must name the hosts in production, not *."),
        ({"ALLOWED_HOSTS": "a.example.com, *"}, "ALLOWED_HOSTS must name the hosts in production, not *."),
        ({"ALLOWED_HOSTS": ""}, "ALLOWED_HOSTS must be set in production."),
        ({"REDIS_URL": ""}, "REDIS_URL must be set in production."),
    ],
)
def test_production_refuses_what_is_not_safe_on_a_network(
    tmp_path: Path, change: dict[str, str], sentence: str
) -> None:
    env = PRODUCTION | {"TOOLHUB_DATA_DIR": str(tmp_path)} | change

    assert refusal(env) == f"toolhub cannot start: {sentence}\n"


@pytest.mark.parametrize("arguments", [["check"], ["check", "--deploy"]])
def test_the_check_of_django_refuses_the_same(tmp_path: Path, arguments: list[str]) -> None:
    env = PRODUCTION | {"TOOLHUB_DATA_DIR": str(tmp_path), "REDIS_URL": "", "PATH": os.environ["PATH"]}

    argv = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "REDIS_URL must be set in production" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_image_is_built_without_secrets(tmp_path: Path) -> None:
    env = {"TOOLHUB_ENV": "production", "TOOLHUB_BUILD": "1", "TOOLHUB_DATA_DIR": str(tmp_path / "data")}

    assert values(env, "TOOLHUB_ENV") == {"TOOLHUB_ENV": "production"}
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TOOLHUB_BOOTSTRAP_PASWORD", "TOOLHUB_BOOTSTRAP_PASSWORD"),
        ("TOOLHUB_LEASE_SECOND", "TOOLHUB_LEASE_SECONDS"),
        ("TOOLHUB_WORKER_CONCURENCY", "TOOLHUB_WORKER_CONCURRENCY"),
        ("toolhub_env", "TOOLHUB_ENV"),
        ("TOOLHUB_FIELD_KEYS_FILES", "TOOLHUB_FIELD_KEYS_FILE"),
    ],
)
def test_a_misspelt_name_ends_the_start_and_names_the_one_that_was_meant(name: str, near: str, tmp_path: Path) -> None:
    said = refusal({name: "1", "TOOLHUB_DATA_DIR": str(tmp_path)})

    assert f"no setting {name}." in said
    assert f"mean {near}?" in said


def test_a_name_that_is_like_none_ends_the_start_too(tmp_path: Path) -> None:
    said = refusal({"TOOLHUB_XYZZY_PLUGH": "1", "TOOLHUB_DATA_DIR": str(tmp_path)})

    assert "no setting TOOLHUB_XYZZY_PLUGH" in said


def test_every_documented_name_is_taken(tmp_path: Path) -> None:
    """With a value that is empty, which counts as not set."""
    names = set(re.findall(r"^\| `(TOOLHUB_\w+)`", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))

    assert len(names) > 50
    assert values(dict.fromkeys(names, "") | {"TOOLHUB_DATA_DIR": str(tmp_path)}, "PORT") == {"PORT": 8000}
