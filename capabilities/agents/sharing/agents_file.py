"""Toolkits and agents from a file of the operator's: written with the same functions as pages and REST, or not at all.

    toolkits:
      devops: {description: ..., tools: [docker, github]}
    agents:
      assistant: {display_name: ..., role: ..., model: ..., tools: [...], allowed_toolkits: [...],
                  initial_toolkits: [...], rooms: [...]}

What the file does not name stays as it is; what it names is as the file says after each start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from capabilities.agents.agents.writes import AgentContent, agent_content, create_agent, update_agent
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, content_of, create_toolkit, update_toolkit
from capabilities.common.refused import ChangeRefused
from capabilities.contract.documents import DocumentRefused, read_document
from capabilities.contract.patterns import ALIASES
from capabilities.models import Agent, LanguageModel, Offer, Tool, Toolkit, ToolsMode
from toolhub.tenants.models import Membership, Organisation

#: Characters of a file.
MAX_FILE = 1_000_000
#: Keys, each with the type of its value, as the message says it.
TEXT, NAMES = "a text", "a list of names"
TOOLKIT_KEYS = {"description": TEXT, "tools": NAMES}
AGENT_KEYS = {
    "display_name": TEXT,
    "role": TEXT,
    "model": TEXT,
    "tools": NAMES,
    "allowed_toolkits": NAMES,
    "initial_toolkits": NAMES,
    "rooms": NAMES,
}
#: Names in the file of the fields that a write calls otherwise.
FILE_KEYS = {"name": "display_name", "slug": "", "offered_to": "rooms"}


@dataclass(frozen=True)
class Applied:
    """Outcome for one toolkit or agent: `new`, `changed` or `unchanged`."""

    kind: str
    name: str
    outcome: str


class FileRefused(ValueError):
    """Nothing of the file was applied. `problems` are sentences that name the file, the key, and what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass
class _Report:
    path: Path
    actor: Membership
    problems: list[str] = field(default_factory=list)

    def add(self, key: str, text: str) -> None:
        self.problems.append(f"{self.path}: {f'{key}: ' if key else ''}{text}")


def apply_file(path: Path, *, actor: Membership) -> list[Applied]:
    """Bring toolkits and agents in step with the file. In the scope of the actor's organisation; one transaction.

    Raises FileRefused with everything that is wrong.
    """
    report = _Report(path, actor)
    content = _content(report)
    with transaction.atomic():
        applied = [
            found
            for kind, write in (("toolkits", _toolkit), ("agents", _agent))
            for name, fields in content[kind].items()
            if (found := _written(report, f"{kind}.{name}", partial(write, report, name, fields)))
        ]
        if report.problems:
            raise FileRefused(report.problems)
    return applied


# -- Reading ----------------------------------------------------------------------------------------------------------


def _content(report: _Report) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Read the file's toolkits and agents, by kind and name, each of the right form. Raises FileRefused."""
    try:
        text = report.path.read_text()
        document = read_document(text) if len(text) <= MAX_FILE else None
    except OSError as error:
        raise FileRefused([f"{report.path}: it cannot be read: {error.strerror}."]) from error
    except (UnicodeDecodeError, DocumentRefused) as error:
        raise FileRefused([f"{report.path}: it is neither YAML nor JSON: {error}"]) from error
    if not isinstance(document, dict):
        raise FileRefused([f"{report.path}: write an object with the keys toolkits and agents, of a megabyte at most."])
    for key in sorted(set(map(str, document)) - {"toolkits", "agents"}):
        report.add(key, "there is no such key here: only toolkits and agents are read.")
    found = {
        kind: _section(report, kind, document.get(kind), keys)
        for kind, keys in (("toolkits", TOOLKIT_KEYS), ("agents", AGENT_KEYS))
    }
    if report.problems:
        raise FileRefused(report.problems)
    return found


def _section(report: _Report, kind: str, fields: Any, keys: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of one kind by name; what is malformed is reported."""
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        report.add(kind, "write an object: a name, and under it what it is.")
        return {}
    for name, entry in fields.items():
        if not isinstance(entry, dict):
            report.add(f"{kind}.{name}", f"write an object with some of the keys {', '.join(keys)}.")
            continue
        for key, value in entry.items():
            if key not in keys:
                report.add(f"{kind}.{name}.{key}", f"there is no such key. There are: {', '.join(keys)}.")
            elif not _is(value, keys[key]):
                report.add(f"{kind}.{name}.{key}", f"write {keys[key]}.")
    return {str(name): entry for name, entry in fields.items()}


def _is(value: Any, wanted: str) -> bool:
    if wanted == TEXT:
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# -- Writing ----------------------------------------------------------------------------------------------------------


def _written(report: _Report, key: str, write: Callable[[], Applied]) -> Applied | None:
    """Run the write and return its outcome; None where it was refused, which is noted."""
    try:
        with transaction.atomic():
            return write()
    except ChangeRefused as error:
        of_file = FILE_KEYS.get(error.field, error.field)
        report.add(f"{key}.{of_file}" if of_file else key, str(error))
    except PermissionDenied as error:
        report.add(key, f"{error} The setting TOOLHUB_AGENTS_FILE_BY names who writes it.")
    return None


def _toolkit(report: _Report, name: str, fields: Mapping[str, Any]) -> Applied:
    """Create or update one toolkit of the file; what it does not name stays. Raises ChangeRefused."""
    stored = Toolkit.objects.filter(name=name).first()
    content = content_of(stored) if stored is not None else ToolkitContent(name)
    if "tools" in fields:
        lines = {line.tool: line for line in content.tools}
        names = _tools(fields["tools"])
        content = replace(content, tools=tuple(lines.get(each, ToolkitLine(each)) for each in names))
    content = replace(content, description=fields.get("description", content.description))
    before = _audit_head(report.actor)
    if stored is None:
        create_toolkit(content, actor=report.actor)
    else:
        update_toolkit(stored, content, actor=report.actor)
    return _applied(report, "toolkit", name, stored is None, before)


def _agent(report: _Report, name: str, fields: Mapping[str, Any]) -> Applied:
    """Create or update one agent of the file; what it does not name stays. Raises ChangeRefused."""
    slug = name.lower().replace("_", "-")
    stored = Agent.objects.select_related("model", "fallback_model").filter(slug=slug).first()
    model = _model(fields["model"]) if "model" in fields else None
    if stored is not None:
        content = agent_content(stored)
    else:
        content = AgentContent(slug, name, model or _usual_model(), starts_with_core=False)
    content = replace(
        content,
        model=model or content.model,
        name=fields.get("display_name", content.name),
        role=fields.get("role", content.role),
        tools=_tools(fields["tools"]) if "tools" in fields else None,
        allowed_toolkits=tuple(fields["allowed_toolkits"]) if "allowed_toolkits" in fields else None,
        initial_toolkits=tuple(fields["initial_toolkits"]) if "initial_toolkits" in fields else None,
    )
    if "tools" in fields:
        content = replace(content, tools_mode=ToolsMode.LISTED)
    if "rooms" in fields:
        offered = Offer.ROLES if fields["rooms"] else Offer.EVERYBODY
        content = replace(content, offered_to=offered, rooms=tuple(fields["rooms"]))
    before = _audit_head(report.actor)
    if stored is None:
        create_agent(content, actor=report.actor)
    else:
        update_agent(stored, content, actor=report.actor)
    return _applied(report, "agent", slug, stored is None, before)


def _applied(report: _Report, kind: str, name: str, is_new: bool, before: str) -> Applied:
    changed = _audit_head(report.actor) != before
    return Applied(kind, name, "new" if is_new else "changed" if changed else "unchanged")


def _audit_head(actor: Membership) -> str:
    """Return the head of the audit, which changes with each change that is put on record."""
    heads = Organisation.objects.filter(pk=actor.organisation_id).values_list("audit_head", flat=True)
    return str(heads.get())


def _tools(names: list[str]) -> tuple[str, ...]:
    """A name that other systems use for one tool is that tool's, unless a tool here is called so. One query."""
    stored = set(Tool.objects.filter(name__in=names).values_list("name", flat=True))
    return tuple(name if name in stored or len(ALIASES.get(name, ())) != 1 else ALIASES[name][0] for name in names)


def _model(name: str) -> LanguageModel:
    """Return the model of this name, or of `provider/name` where several providers have one of that name. Raises
    ChangeRefused."""
    language_models = LanguageModel.objects.select_related("provider").defer("provider__api_key")
    provider, _, rest = name.partition("/")
    found = list(language_models.filter(name=name)[:2]) or list(
        language_models.filter(provider__slug=provider, name=rest)[:2]
    )
    if not found:
        text = f"There is no model {name[:100]}: add it on the page Providers, or name one that is there."
        raise ChangeRefused("model", text, code="unknown")
    if len(found) > 1:
        raise ChangeRefused("model", f"Several providers have a model {name[:100]}: write provider/{name[:100]}.")
    return found[0]


def _usual_model() -> LanguageModel:
    """The model of the agent that was made first. Raises ChangeRefused where there is none."""
    agent = Agent.objects.select_related("model__provider").order_by("pk").first()
    if agent is None:
        raise ChangeRefused("model", "Name a model: there is no agent yet whose model it could share.")
    return agent.model
