"""The form of an agent. Its tools and toolkits come beside it: a checkbox and a place for each that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from capabilities.agents.agents.drafts import AgentDraft, changed_copy
from capabilities.agents.agents.queries import PickedTool, PickedToolkit
from capabilities.agents.agents.writes import (
    COLUMNS,
    MAX_OWN_TOOLS,
    MAX_PROMPT,
    MAX_TOOLKITS,
    AgentContent,
    OwnLine,
    allowed_toolkits,
    own_lines,
    rooms_of,
)
from capabilities.common.columns import form_field
from capabilities.common.names_field import NamesField, ShortNameField, in_places
from capabilities.common.picker import with_kept
from capabilities.language_models.providers.forms import CallsForm
from capabilities.language_models.providers.queries import models_by_name
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import (
    Agent,
    AgentScope,
    ClientApprovals,
    LanguageModel,
    LoadingMode,
    Offer,
    Role,
    RoutingMode,
    ToolsMode,
)
from toolhub.tenants.people.forms import PublicIdField

CHOICES: dict[str, list[tuple[str, str]]] = {
    "offered_to": [
        (Offer.EVERYBODY, "Everybody in the organisation"),
        (Offer.ROLES, "The members of the roles below: nobody else sees it or talks to it"),
    ],
    "tools_mode": [
        (ToolsMode.LISTED, "Those that are listed below"),
        (ToolsMode.ALL, "Every tool of the catalogue, also those that are added later"),
    ],
    "loading_mode": [
        (LoadingMode.NEXT_REQUEST, "With the next message: tools do not change during a turn"),
        (LoadingMode.SAME_RUN, "In the same turn: loaded tools are sent with the next model call"),
        (
            LoadingMode.NATIVE,
            "In the same turn, added to the conversation: OpenAI’s prompt cache holds; other providers: as above",
        ),
        (
            LoadingMode.NATIVE_SEARCH,
            "Found by the provider’s own search: OpenAI’s models look among what can be loaded; others: as above",
        ),
        (
            LoadingMode.CONSTANT,
            "Never: the agent searches for tools and calls them by name, so the sent tools never change",
        ),
    ],
    "scope": [
        (AgentScope.ORGANISATION, "The organisation’s: tools may use shared credentials"),
        (AgentScope.MEMBER, "Only the member’s own: tools that use shared credentials are not sent"),
    ],
    "routing_mode": [
        (RoutingMode.OFF, "All of them: every message is sent with every tool"),
        (RoutingMode.KEYWORDS, "Those of the categories whose keywords stand in the message; none where none does"),
        (RoutingMode.HYBRID, "Those that the message needs, by keywords and by the words of names and descriptions"),
    ],
    "client_approvals": [
        (ClientApprovals.ASK, "Say where to answer: the turn waits, and the client gets a sentence with the address"),
        (ClientApprovals.HIDE, "Leave these tools out: nobody is asked, and a call that asks all the same is refused"),
    ],
}


#: Where the page says it in other words than the column.
HELP = {
    "role": "One line on what it does, read by people who choose an agent and by agents that ask one another.",
    "max_rounds": "Most model calls in one turn. The limit of the model takes precedence. Leave blank for the default.",
    "offered_to": "",
    "tools_mode": "What a member may use is decided by roles and grants, also for an agent with every tool.",
    "loading_mode": "",
    "scope": "",
    "routing_mode": "What is loaded, and pinned tools, are sent always. What a message does not bring the "
    "model finds with search_tools, and gets with its next step. Where sent tools never change (above), all "
    "are sent.",
    "routing_tokens": "How many tokens of definitions are filled, the best tools first. Leave blank for 1,000, "
    "and 2,500 where there are more than 300 tools.",
    "client_approvals": "A program that calls /v1 often has nobody beside it who could approve a call or "
    "answer a question. Chats in the browser and clients of MCP are not affected.",
}


class AgentForm(CallsForm):
    """Choices are read when the form is made, in the scope of its organisation."""

    slug = ShortNameField()
    description = forms.CharField(required=False, max_length=2_000, help_text="Shown to people who choose an agent.")
    rooms = forms.ModelMultipleChoiceField(
        queryset=Role.objects.none(),
        to_field_name="slug",
        required=False,
        label="Roles it is offered to",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"invalid_choice": "There is no role %(value)s."},
    )
    prompt = forms.CharField(
        required=False,
        max_length=MAX_PROMPT,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="The system prompt, sent to the model in each turn.",
    )
    model = PublicIdField(
        queryset=LanguageModel.objects.none(),
        empty_label=None,
        error_messages={"invalid_choice": "There is no such model.", "required": "Choose a model."},
    )
    fallback_model = PublicIdField(
        queryset=LanguageModel.objects.none(),
        required=False,
        empty_label="None",
        label="Second model",
        help_text="Goes on with a turn when the model is overloaded, out of credit, switched off or gone. Without one, "
        "the turn fails.",
        error_messages={"invalid_choice": "There is no such model."},
    )
    tools = NamesField("tool", MAX_OWN_TOOLS, label="Own tools")
    deferred_tools = NamesField("tool", MAX_OWN_TOOLS)
    pinned_tools = NamesField("tool", MAX_OWN_TOOLS)
    allowed_toolkits = NamesField("toolkit", MAX_TOOLKITS, label="Toolkits")
    initial_toolkits = NamesField("toolkit", MAX_TOOLKITS)

    class Meta:
        model = Agent
        fields = COLUMNS
        formfield_callback = form_field
        widgets = dict.fromkeys(CHOICES, forms.RadioSelect(attrs={"class": "form-check-input"})) | {
            "role": forms.TextInput(attrs={"autocomplete": "off"})
        }
        help_texts = HELP

    def __init__(self, data: QueryDict | None = None, *, agent: Agent | None = None) -> None:
        if data is not None:
            data = with_kept(data, "tools", "allowed_toolkits")
        stored = {field: getattr(agent, field) for field in COLUMNS} | {"rooms": rooms_of(agent)} if agent else None
        super().__init__(data, initial=stored)
        roles, models = Role.objects.order_by("name", "slug"), models_by_name()
        self._choose("rooms", roles, lambda: [(role.slug, str(role)) for role in roles])
        for name, words in CHOICES.items():
            self.fields[name].choices = words  # type: ignore[attr-defined]
            self.fields[name].required = name in ("loading_mode", "scope")
        self._choose("model", models, lambda: _named(models))
        self._choose("fallback_model", models, lambda: [("", "None"), *_named(models)])
        self.explain_blank_fields("what the model says", resolve_model(agent.model) if agent else None)
        #: Ticked tools and toolkits: as posted, else as stored.
        if data is not None:
            self.own = in_places(data, "tools", MAX_OWN_TOOLS)
            self.deferred = set(data.getlist("deferred_tools"))
            self.pinned = set(data.getlist("pinned_tools"))
            self.allowed = in_places(data, "allowed_toolkits", MAX_TOOLKITS, "toolkit-place-")
            self.initial_ones = set(data.getlist("initial_toolkits"))
        else:
            toolkits = allowed_toolkits(agent) if agent else {}
            own = own_lines(agent) if agent else {}
            self.own = tuple(own)
            self.deferred = {name for name, line in own.items() if line.is_deferred}
            self.pinned = {name for name, line in own.items() if line.is_pinned}
            self.allowed = tuple(toolkits)
            self.initial_ones = {name for name, is_initial in toolkits.items() if is_initial}

    def _choose(self, name: str, rows: QuerySet[Any], choices: Callable[[], list[tuple[Any, str]]]) -> None:
        """Give the field these rows to choose from; they are read once, when the field is first shown."""
        self.fields[name].queryset = rows  # type: ignore[attr-defined]
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def tool_rows(self) -> Sequence[PickedTool]:
        positions = enumerate(self.own, start=1)
        return [PickedTool(name, position, name in self.deferred, name in self.pinned) for position, name in positions]

    def toolkit_rows(self) -> Sequence[PickedToolkit]:
        return [
            PickedToolkit(name, position, name in self.initial_ones) for position, name in enumerate(self.allowed, 1)
        ]

    def draft(self, agent: Agent | None, organisation_id: int) -> AgentDraft | None:
        """Return the agent as the form has it, whether it can be saved or not; what is wrong counts as stored. None
        where there is no model yet. Two queries of a new agent's form that nobody has filled in."""
        sent = {name: self._value(name) for name in COLUMNS if name in self.cleaned_data} if self.is_checked else {}
        draft = changed_copy(agent, organisation_id, sent)
        if draft.model_id is None:
            model = models_by_name().first()
            if model is None:
                return None
            draft.model = model
        own = {name: OwnLine(name in self.deferred, name in self.pinned) for name in self.own}
        toolkits = {name: name in self.initial_ones for name in self.allowed}
        return AgentDraft(draft, own, toolkits, self._room_names() if draft.offered_to == Offer.ROLES else ())

    @property
    def is_checked(self) -> bool:
        """True where it was sent, and its fields were looked at."""
        return self.is_bound and self.errors is not None

    def _room_names(self) -> tuple[str, ...]:
        """Names of the ticked roles, for people, from the choices of the field."""
        ticked = set(map(str, self["rooms"].value() or ()))
        return tuple(str(label) for value, label in self.fields["rooms"].choices if str(value) in ticked)  # type: ignore[attr-defined]

    def content(self) -> AgentContent:
        data = self.cleaned_data
        columns = self.columns(COLUMNS) | {
            "slug": data["slug"] or self.initial.get("slug", ""),
            "prompt": data["prompt"].replace("\r\n", "\n"),
        }
        return AgentContent(
            **columns,
            # Who goes back to everybody leaves the ticks of roles as they were.
            rooms=tuple(role.slug for role in data["rooms"]) if data["offered_to"] == Offer.ROLES else (),
            tools=self.own,
            # Who unticks a tool and leaves its “deferred” ticked means the tool.
            deferred_tools=tuple(name for name in data["deferred_tools"] if name in self.own),
            pinned_tools=tuple(name for name in data["pinned_tools"] if name in self.own),
            allowed_toolkits=self.allowed,
            initial_toolkits=data["initial_toolkits"],
        )


def _named(models: Iterable[LanguageModel]) -> list[tuple[Any, str]]:
    """Models as a field's choices."""
    return [(model.public_id, str(model)) for model in models]
