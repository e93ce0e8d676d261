from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.fernet import Fernet
from kombu import Connection
from redis import Redis

from tests.processes import wait_for
from toolhub.embedded.supervisor import Part, stop_parts, valkey_command
from toolhub.environment import Environment, celery_broker_url, data_secret

env = Environment()


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as caught:
        read()
    return str(caught.value)


@pytest.fixture(autouse=True)
def no_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KNOB", raising=False)
    monkeypatch.delenv("KNOB_FILE", raising=False)


def test_what_is_not_said_is_the_default() -> None:
    assert env.text("KNOB", "a") == "a"
    assert env.boolean("KNOB", True) is True
    assert env.integer("KNOB", 3, 1, 5) == 3
    assert env.number("KNOB", 0.5, 0, 1) == 0.5
    assert env.choice("KNOB", "a", ("a", "b")) == "a"
    assert env.words("KNOB", ["a"]) == ["a"]


def test_an_empty_value_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOB", "  ")

    assert env.text("KNOB", "a") == "a"
    assert env.integer("KNOB", 3, 1, 5) == 3
    assert env.words("KNOB", ["a"]) == ["a"]


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False), ("off", False)]
)
def test_yes_and_no_have_several_spellings(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("KNOB", value)

    assert env.boolean("KNOB", not expected) is expected


def test_words_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOB", " a, b ,,c")

    assert env.words("KNOB", []) == ["a", "b", "c"]


def test_both_ends_of_a_range_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOB", "1")
    assert env.integer("KNOB", 3, 1, 5) == 1
    monkeypatch.setenv("KNOB", "5")
    assert env.integer("KNOB", 3, 1, 5) == 5


@pytest.mark.parametrize(
    ("value", "read", "sentence"),
    [
        ("maybe", lambda: env.boolean("KNOB", True), "KNOB must be true or false; it is 'maybe'."),
        ("ten", lambda: env.integer("KNOB", 3, 1, 5), "KNOB must be a whole number from 1 to 5; it is 'ten'."),
        ("2.5", lambda: env.integer("KNOB", 3, 1, 5), "KNOB must be a whole number from 1 to 5; it is '2.5'."),
        ("6", lambda: env.integer("KNOB", 3, 1, 5), "KNOB must be a whole number from 1 to 5; it is 6."),
        ("0", lambda: env.integer("KNOB", 3, 1, 5), "KNOB must be a whole number from 1 to 5; it is 0."),
        ("nan", lambda: env.number("KNOB", 0.5, 0, 1), "KNOB must be a number from 0 to 1; it is nan."),
        ("c", lambda: env.choice("KNOB", "a", ("a", "b")), "KNOB must be one of a, b; it is 'c'."),
        ("abc", lambda: env.text("KNOB", "", at_least=4), "KNOB must have at least 4 characters; it has 3."),
    ],
)
def test_a_wrong_value_ends_the_start_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, read: Callable[[], object], sentence: str
) -> None:
    monkeypatch.setenv("KNOB", value)

    assert refusal(read) == f"toolhub cannot start: {sentence}"


def test_a_secret_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("KNOB_FILE", str(tmp_path / "secret"))

    assert env.text("KNOB", "") == "from a file"


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KNOB_FILE", str(tmp_path / "gone"))

    sentence = refusal(lambda: env.text("KNOB", ""))

    assert f"KNOB_FILE names {tmp_path / 'gone'}, which cannot be read" in sentence


def test_a_data_secret_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    first = data_secret(tmp_path / "var", "secret_key", allowed=True)

    assert data_secret(tmp_path / "var", "secret_key", allowed=True) == first
    assert len(first) >= 50
    assert (tmp_path / "var" / "secrets" / "secret_key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "var" / "secrets").stat().st_mode & 0o777 == 0o700


def test_a_fernet_secret_is_a_key(tmp_path: Path) -> None:
    Fernet(data_secret(tmp_path, "field_key", allowed=True, fernet=True))


@pytest.mark.parametrize(("fernet", "variable"), [(False, "SECRET_KEY"), (True, "TOOLHUB_FIELD_KEYS")])
def test_where_no_secret_may_be_made_up_the_missing_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fernet: bool, variable: str
) -> None:
    monkeypatch.delenv("TOOLHUB_BUILD", raising=False)

    sentence = refusal(lambda: data_secret(tmp_path, "any", allowed=False, fernet=fernet))

    assert sentence == f"toolhub cannot start: {variable} must be set in production."
    assert os.listdir(tmp_path) == []


def test_a_data_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    sentence = refusal(lambda: data_secret(tmp_path / "file", "any", allowed=True))

    assert sentence == f"toolhub cannot start: TOOLHUB_DATA_DIR ({tmp_path / 'file'}) cannot be used: Not a directory."


@pytest.mark.parametrize(
    ("redis_url", "expected"),
    [
        ("", "memory://"),
        ("redis://:secret@broker:6379/2", "redis://:secret@broker:6379/2"),
        ("rediss://broker:6379/0", "rediss://broker:6379/0"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=0"),
        ("unix://me:secret@/run/valkey.sock?db=3", "redis+socket://me:secret@/run/valkey.sock?virtual_host=3"),
    ],
)
def test_celery_has_its_own_names_for_a_broker(redis_url: str, expected: str) -> None:
    assert celery_broker_url(redis_url) == expected


def test_redis_and_celery_find_the_same_database_from_one_url(tmp_path: Path) -> None:
    folder = tmp_path / "däta with space"
    folder.mkdir()
    path = folder / "valkey.sock"
    url = f"unix://{quote(str(path))}?db=3"
    valkey = Part("Valkey", valkey_command(folder, path), os.environ)
    valkey.start()
    try:
        wait_for(path.exists, 10)
        with Connection(celery_broker_url(url)) as connection, connection.SimpleQueue("bells") as queue:
            queue.put("ding")
        with Redis.from_url(url) as client:
            assert client.llen("bells") == 1
    finally:
        stop_parts([valkey], 5)
