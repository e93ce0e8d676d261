"""CONTRIBUTING.md says how a category is added; this follows it to the letter."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capabilities.assistant import builtin
from capabilities.catalogue.tools.install import install_builtin
from capabilities.choosing.routing.keywords import Keywords
from capabilities.models import Category, Tool
from capabilities.running.registry import registry
from tests.capabilities.running.test_registry import CONTEXT
from tests.paths import ROOT
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file that the text shows, where the service looks for categories; its name."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Add a category\n")[2].partition("\n## ")[0]
    found = re.search(r"`capabilities/assistant/builtin/(\w+)\.py`.*?```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    name, code = found.groups()
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setattr(builtin, "__path__", [*builtin.__path__, str(tmp_path)])
    for kept in ("categories", "tools", "services"):
        monkeypatch.setattr(registry, kept, dict(getattr(registry, kept)))
    yield name
    sys.modules.pop(f"capabilities.assistant.builtin.{name}", None)
    monkeypatch.delattr(builtin, name, raising=False)


@pytest.mark.django_db
def test_zk_37_a_category_is_added_as_the_text_says(module: str, acme: Organisation) -> None:
    assert module not in registry.categories

    registry.discover("capabilities.assistant.builtin")
    with organisation_scope(acme):
        install_builtin(acme)
        category = Category.objects.get(name=module)
        tools = list(Tool.objects.filter(category=category).values_list("name", flat=True))

    spec = registry.categories[module]
    assert (category.title, category.is_core) == (spec.title, spec.is_core)
    assert tools
    (name, *_) = tools
    tool = registry.tools[name]
    word = spec.keywords[0]
    assert dict(Keywords.of({module: spec.keywords}).matches(f"Now {word}, please")) == {module: (word,)}
    required = tool.parameters.get("required", [])
    assert tool.call(CONTEXT, dict.fromkeys(required, "Kiel"))


def test_zk_37_the_requirements_lead_to_that_text() -> None:
    text = (ROOT / "docs" / "requirements.md").read_text()

    assert re.search(r"^\| ZK-37 \| .*CONTRIBUTING\.md.* \|$", text, re.MULTILINE)
