"""Columns of agents, models and providers: each reaches the content, the form and its page, REST and the audit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.db.models import Model

from capabilities.agents.agents.api import AgentDetailOut, AgentIn
from capabilities.agents.agents.forms import AgentForm
from capabilities.agents.agents.writes import COLUMNS, AgentContent
from capabilities.common.columns import ColumnsForm, audited, check_columns, columns_of, default_of
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.api import LanguageModelOut, ModelPart, ProviderIn, ProviderOut
from capabilities.language_models.providers.forms import ModelForm, ProviderForm
from capabilities.language_models.providers.writes import (
    MODEL_COLUMNS,
    PROVIDER_COLUMNS,
    ModelContent,
    ProviderContent,
)
from capabilities.models import Agent, LanguageModel, Provider, ToolsMode

PAGES = "capabilities/agents/agents/agent_form.html", "capabilities/language_models/providers/_calls.html"
MODEL_PAGES = "capabilities/language_models/providers/model_form.html", PAGES[1]
PROVIDER_PAGES = ("capabilities/language_models/providers/provider_form.html",)
USES = [
    (Agent, COLUMNS, AgentContent, AgentForm, PAGES, (AgentIn, AgentDetailOut)),
    (LanguageModel, MODEL_COLUMNS, ModelContent, ModelForm, MODEL_PAGES, (ModelPart, LanguageModelOut)),
    (Provider, PROVIDER_COLUMNS, ProviderContent, ProviderForm, PROVIDER_PAGES, (ProviderIn, ProviderOut)),
]


@pytest.mark.parametrize(("model", "columns", "content", "form", "pages", "bodies"), USES)
def test_each_column_is_content_and_on_its_form_and_page_and_in_rest(
    model: type[Model],
    columns: tuple[str, ...],
    content: Any,
    form: type[ColumnsForm],
    pages: tuple[str, ...],
    bodies: tuple[Any, ...],
) -> None:
    source = "".join((Path(settings.BASE_DIR) / "templates" / page).read_text() for page in pages)

    assert set(columns) <= {each.name for each in fields(content)}
    assert set(columns) <= form.base_fields.keys()
    assert [name for name in columns if f"form.{name} " not in source] == []
    for body in bodies:
        assert set(columns) <= body().fields.keys()


@pytest.mark.parametrize(("model", "columns", "content", "form", "pages", "bodies"), USES)
def test_content_and_rest_begin_with_the_defaults_of_the_columns(
    model: type[Model], columns: tuple[str, ...], content: Any, form: object, pages: object, bodies: tuple[Any, ...]
) -> None:
    optional = {each.name: each.default for each in fields(content) if isinstance(each.default, str | int | None)}
    taken = bodies[0]().fields

    for name in optional.keys() & columns:
        assert optional[name] == default_of(model, name), name
        assert taken[name].default == default_of(model, name) or name.endswith("_model"), name


def test_columns_are_what_people_set_the_first_ones_first() -> None:
    names = columns_of(LanguageModel, "dialect", "spoken")

    assert names[:2] == ("dialect", "spoken")
    assert names.count("dialect") == 1
    assert not {"id", "public_id", "organisation", "provider", "learned", "token_factor", "missing_since"} & set(names)


def test_the_audit_has_values_and_the_text_of_rows() -> None:
    agent = Agent(slug="a", tools_mode=ToolsMode.ALL, model=LanguageModel(name="m", provider=Provider(name="P")))

    found = audited(agent, ("slug", "tools_mode", "model", "fallback_model", "max_rounds"))

    assert found == {"slug": "a", "tools_mode": "all", "model": "P: m", "fallback_model": "", "max_rounds": None}
    assert type(found["tools_mode"]) is str


@pytest.mark.parametrize(
    ("model", "field", "wrong", "right"),
    [
        (Agent, "client_approvals", "never", "hide"),
        (Agent, "client_approvals", "", "ask"),
        (Agent, "max_rounds", 0, None),
        (Agent, "max_rounds", 26, 25),
        (LanguageModel, "dialect", "x", ""),
        (LanguageModel, "tool_limit", -1, None),
        (LanguageModel, "temperature", 2.5, 2.0),
        (Provider, "tool_limit", 100_001, 0),
        (Provider, "dialect", "", "auto"),
    ],
)
def test_choices_and_bounds_of_a_column_are_checked(model: type[Model], field: str, wrong: Any, right: Any) -> None:
    check_columns(model, SimpleNamespace(**{field: right}), [field])
    with pytest.raises(ChangeRefused) as refused:
        check_columns(model, SimpleNamespace(**{field: wrong}), [field])

    assert refused.value.field == field


def test_a_form_says_the_bounds_of_a_column_and_begins_with_its_default() -> None:
    limit = ProviderForm.base_fields["tool_limit"]

    assert (limit.initial, limit.widget.attrs["min"], limit.widget.attrs["max"]) == (128, 0, 100_000)
