"""First steps of a new organisation, each with whether it is done. Steps tick themselves: they look at rows, not
clicks."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, Subquery

from capabilities.models import Agent, Provider
from sessions.models import BY_MEMBERS, KEPT, ChatSession, TurnStatus
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.people.invitations import open_invitations


@dataclass(frozen=True)
class FirstStep:
    """One step: what to do, why, and the name of the page where it is done."""

    title: str
    why: str
    page: str
    act: str
    is_done: bool


def first_steps(organisation: Organisation) -> list[FirstStep]:
    """Return the steps in the order in which they make sense. One query."""
    done = _done(organisation)
    message = "Add a task: buy milk tomorrow" if organisation.has_assistant else "Hello"
    return [
        FirstStep(
            "Send a message to an agent",
            f"For example: {message}. The offline model chooses tools by words in the message.",
            "session_list",
            "Open a session",
            done["turn"],
        ),
        FirstStep(
            "Add a model provider",
            "Any OpenAI-compatible API: OpenAI, vLLM, Ollama. The API key is stored encrypted and never shown.",
            "provider_list",
            "Add a provider",
            done["provider"],
        ),
        FirstStep(
            "Choose the model of an agent",
            "Agents use the offline model until you choose a model of the provider.",
            "agent_list",
            "Open agents",
            done["agent"],
        ),
        FirstStep(
            "Invite somebody",
            "You send them a link. Their roles decide which tools they may use.",
            "member_list",
            "Invite a member",
            done["member"],
        ),
    ]


def _done(organisation: Organisation) -> dict[str, bool]:
    own = {"organisation": OuterRef("pk")}
    members = Membership.objects.filter(**own, ended_at=None)
    row = (
        Organisation.objects.filter(pk=organisation.pk)
        .annotate(
            turn=Exists(ChatSession.objects.filter(KEPT, BY_MEMBERS, **own, turns__status=TurnStatus.DONE)),
            provider=Exists(Provider.objects.filter(**own).exclude(base_url="")),
            agent=Exists(Agent.objects.filter(**own, is_enabled=True).exclude(model__provider__base_url="")),
            members=Subquery(members.values("organisation").annotate(count=Count("pk")).values("count")),
            invited=Exists(open_invitations().filter(**own)),
        )
        .values("turn", "provider", "agent", "members", "invited")
        .get()
    )
    return {
        "turn": row["turn"],
        "provider": row["provider"],
        "agent": row["agent"],
        "member": row["members"] > 1 or row["invited"],
    }
