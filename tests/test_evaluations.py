"""The script of docs/evaluations.md, on everything that `make run` starts, against two providers of our own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from capabilities.running.registry import registry
from tests.browser import LOCAL, TOKEN, service
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


@pytest.fixture
def providers() -> Iterator[tuple[ScriptedOpenAI, ScriptedOpenAI]]:
    first, second = ScriptedOpenAI().start(), ScriptedOpenAI().start()
    yield first, second
    first.stop()
    second.stop()


def sent_tools(provider: ScriptedOpenAI) -> list[set[str]]:
    """The names of the tools of each request, in their order."""
    return [{tool["function"]["name"] for tool in each.get("tools", [])} for each in provider.requests]


def test_zs_58_one_prompt_runs_under_three_profiles_and_two_forced_providers_from_configuration_alone(
    tmp_path: Path, empty_database: Path | None, providers: tuple[ScriptedOpenAI, ScriptedOpenAI]
) -> None:
    script = next(iter(re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "evaluations.md").read_text(), re.S)))
    for name, provider in zip(("FIRST", "SECOND"), providers, strict=True):
        script = re.sub(rf"{name}_URL=\S+", f"{name}_URL={provider.url}", script)
        provider.enqueue(*(Say("Nothing.") for _ in range(3)))

    with service(tmp_path, empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as up:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("localhost:8000", f"localhost:{up.port}")],
            env={"PATH": os.environ["PATH"], "TOKEN": TOKEN, "HOME": str(Path.home())},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    runs = [line.split("\t")[1:4] for line in ran.stdout.splitlines() if line.startswith("run\t")]
    assert runs == [
        [profile, model, "done"]
        for profile in ("everything", "read-only", "minimal")
        for model in ("gpt-5.6-terra", "openrouter/auto")
    ]
    for provider in providers:
        everything, read_only, minimal = sent_tools(provider)
        assert minimal < read_only < everything
        assert minimal == {  # and web_search, which needs set-up here
            "file_read",
            "file_grep",
            "web_read",
            "memory_search",
            "knowledge",
            "ask_user",
        }
        effects = {registry.tools[name].effect for name in read_only}
        assert effects == {"read"}
