"""Reading the environment: typed, bounded, and loud. A wrong value ends the start with one sentence."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import environ
from cryptography.fernet import Fernet

from toolhub.refusal import refuse

DATABASE_SCHEMES = ("postgres", "postgresql", "sqlite")


#: How the names begin that mean this service and nothing else.
PREFIX = "TOOLHUB_"
#: Such names that other parts read, or that only some set-ups do.
READ_ELSEWHERE = frozenset(
    f"{PREFIX}{name}"
    for name in ("BUILD", "DATABASE_POOL", "OFFLINE_MODEL_URL", "OFFLINE_WORD_SECONDS", "TRACES", "TOKEN")
) | frozenset(
    f"{PREFIX}{name}"  # of the tests
    for name in (
        "PUBLISH",
        "REQUIRE_BROWSER",
        "REQUIRE_CLIENTS",
        "REQUIRE_ISOLATION",
        "SHARED_DATA",
        "TEST_MCP",
        "TEST_SEED",
    )
)


class Environment:
    """Reads `NAME`, or the file that `NAME_FILE` names, for secrets mounted as files."""

    def __init__(self) -> None:
        #: Names that were asked for.
        self.known: set[str] = set()

    def check_names(self) -> None:
        """Refuse to start where a name begins as ours do and is none: a misspelt one would count for nothing."""
        known = self.known | READ_ELSEWHERE
        known |= {f"{name}_FILE" for name in known}
        for name in sorted(os.environ):
            if name.upper().startswith(PREFIX) and name not in known:
                near = get_close_matches(name.upper(), known, n=1, cutoff=0.6)
                hint = f" Did you mean {near[0]}?" if near else ""
                refuse(f"there is no setting {name}.{hint} See docs/settings.md, or take it out of the environment.")

    def text(self, name: str, default: str, *, at_least: int = 0) -> str:
        """Return a text of the environment, or its default. A shorter one than `at_least` refuses the start."""
        value = self._read(name)
        if not value:
            return default
        if len(value) < at_least:
            refuse(f"{name} must have at least {at_least} characters; it has {len(value)}.")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self._read(name).lower()
        if value in ("1", "true", "yes", "on"):
            return True
        if value in ("0", "false", "no", "off"):
            return False
        if value:
            refuse(f"{name} must be true or false; it is {value!r}.")
        return default

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        return int(self._number(name, default, low, high, int, "a whole number"))

    def number(self, name: str, default: float, low: float, high: float) -> float:
        return self._number(name, default, low, high, float, "a number")

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        value = self._read(name) or default
        if value not in choices:
            refuse(f"{name} must be one of {', '.join(choices)}; it is {value!r}.")
        return value

    def words(self, name: str, default: list[str]) -> list[str]:
        value = self._read(name)
        return [word.strip() for word in value.split(",") if word.strip()] if value else default

    def refuse_if(self, wrong: bool, sentence: str) -> None:
        if wrong:
            refuse(sentence)

    def _read(self, name: str) -> str:
        self.known.add(name)
        path = os.environ.get(f"{name}_FILE", "")
        if path:
            try:
                return Path(path).read_text().strip()
            except OSError as error:
                refuse(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.")
        return os.environ.get(name, "").strip()

    def _number(
        self, name: str, default: float, low: float, high: float, kind: type[int] | type[float], noun: str
    ) -> float:
        text = self._read(name)
        if not text:
            return default
        try:
            value = kind(text)
        except ValueError:
            refuse(f"{name} must be {noun} from {low} to {high}; it is {text!r}.")
        if not low <= value <= high:
            refuse(f"{name} must be {noun} from {low} to {high}; it is {text}.")
        return value


def data_secret(data_dir: Path, name: str, *, allowed: bool, fernet: bool = False) -> str:
    """A secret kept in the data folder, made the first time. Refused where secrets must be given (production)."""
    if not allowed:
        if os.environ.get("TOOLHUB_BUILD") == "1":  # collecting static files into an image needs none
            return Fernet.generate_key().decode()
        variable = "TOOLHUB_FIELD_KEYS" if fernet else "SECRET_KEY"
        refuse(f"{variable} must be set in production.")
    path = data_dir / "secrets" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_text().strip()
        with os.fdopen(descriptor, "w") as file:
            value = Fernet.generate_key().decode() if fernet else secrets.token_urlsafe(64)
            file.write(value)
        return value
    except OSError as error:
        refuse(f"TOOLHUB_DATA_DIR ({data_dir}) cannot be used: {error.strerror}.")


def are_fernet_keys(keys: Sequence[str]) -> bool:
    try:
        return bool([Fernet(key) for key in keys])
    except ValueError:
        return False


def database(url: str) -> dict[str, Any]:
    """Django's settings for one database. A driver that was not meant is refused; the URL is not repeated: a secret."""
    scheme = url.partition("://")[0]
    try:
        config: dict[str, Any] = environ.Env.db_url_config(url) if scheme in DATABASE_SCHEMES else {}
    except ValueError:
        config = {}
    if not config.get("NAME"):
        refuse("DATABASE_URL must be postgres://user:password@host:port/name or sqlite:///path.")
    return config


def celery_broker_url(redis_url: str) -> str:
    """Return the URL of the Valkey server as Celery writes it, with names of its own for a unix socket and for the
    number of a database."""
    if not redis_url:
        return "memory://"
    scheme, _, rest = redis_url.partition("://")
    if scheme not in ("redis", "rediss", "unix") or not rest:
        refuse("REDIS_URL must be redis://..., rediss://... or unix://path.")
    if scheme != "unix":
        return redis_url
    path, _, query = rest.partition("?")
    database = dict(parse_qsl(query)).get("db", "0")
    return f"redis+socket://{path}?virtual_host={database}"
