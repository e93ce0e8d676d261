"""Explain: the members and agents of which "why is this tool (not) here?" may be asked, and the answer in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.rights import require
from capabilities.models import Agent, RoutingMode, is_offered
from sessions.access import visible_sessions
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.insight.explain.asked_tools import reasons_page
from sessions.insight.explain.reasons import NOT_OFFERED, Asked, Reasons
from sessions.insight.explain.remedies.table import Remedies
from sessions.insight.explain.remedies.ways import Change
from sessions.models import ChatSession
from toolhub.tenants.models import Membership, Right

#: Characters of a message that may be asked about.
MAX_MESSAGE = 100_000


@dataclass(frozen=True)
class Subject:
    """Subject of a question: a member and an agent, in a session of theirs, or in a new one."""

    member: Membership
    agent: Agent
    session: ChatSession | None


@dataclass(frozen=True)
class Explained:
    """One tool: the verdict of every stage, the single changes that would let it through, and a sentence."""

    reasons: Reasons
    changes: tuple[Change, ...]
    sentence: str
    #: No agent has it or can load it.
    is_nobodys: bool = False


@dataclass(frozen=True)
class Explanation:
    """Some tools; the places to go on after and before, empty at either end. Numbers are of everything that is sent."""

    subject: Subject
    tools: Sequence[Explained]
    after: str
    before: str
    sent: int
    tokens: int
    tool_limit: int
    #: Way in which messages decide what is sent, one of RoutingMode; and tokens of all tools, had the message left none
    #: out.
    routing: str
    all_tokens: int
    #: True where the agent is offered to the member: if not, nothing at all is sent.
    is_offered: bool = True
    #: True where the session's tools are off: a person's messages are sent without any; those of a client of `/v1`
    #: with.
    tools_off: bool = False
    #: True where no role and no grant allows the member anything.
    allows_nothing: bool = False


def explain(subject: Subject, asked: Asked) -> Explanation:
    """Explain the tools that are asked about. Sixteen queries at most, whatever there is, and one for an agent that is
    offered to roles. The caller has asked `subject_of` whether the reader may know it."""
    page = reasons_page(subject.member, subject.agent, subject.session, asked)
    changes = Remedies(page.inputs, subject.member, in_session=subject.session is not None)
    return Explanation(
        subject,
        [_explained(each, changes.of(each), subject) for each in page.tools],
        page.after,
        page.before,
        len(page.inputs.selection.tools),
        page.inputs.selection.tokens,
        page.inputs.situation.model.tool_limit,
        str(subject.agent.routing_mode if is_routed(subject.agent) else RoutingMode.OFF),
        page.inputs.selection.all_tokens,
        is_offered(subject.agent, subject.member),
        subject.session is not None and subject.session.tools_off and not asked.client,
        page.inputs.permissions.rights.allows_nothing,
    )


# -- About whom -------------------------------------------------------------------------------------------------------


def subject_of(
    reader: Membership,
    *,
    member: UUID | str | None = None,
    agent: str | Agent = "",
    session: UUID | None = None,
) -> Subject:
    """Return the member, agent and session that a question is about: the reader, unless another member (by public id or
    e-mail address) or a session is named; without an agent the session's, or the first one that there is.

    Raises PermissionDenied without the right `roles` for another member, and ChangeRefused with the code `unknown` for
    what is not there or not visible. An agent that is given as a row comes with its model and provider. At most three
    queries.
    """
    chat = _session(reader, session) if session is not None else None
    found = _member(reader, member, chat)
    if chat is not None and chat.membership_id != found.pk:
        raise ChangeRefused("session", f"This is no session of {found}: choose one of theirs.", code="unknown")
    if chat is not None and agent in ("", chat.agent, chat.agent.slug):
        return Subject(found, chat.agent, chat)
    return Subject(found, agent if isinstance(agent, Agent) else _agent(reader, agent), chat)


def _session(reader: Membership, session: UUID) -> ChatSession:
    rows = visible_sessions(reader).select_related("agent__model__provider", "membership__user")
    found = rows.defer("agent__model__provider__api_key").filter(pk=session).first()
    if found is None:
        raise not_there("session", "session", session)
    return found


def _member(reader: Membership, named: UUID | str | None, chat: ChatSession | None) -> Membership:
    if named is None:
        named = chat.membership.public_id if chat is not None else reader.public_id
    if named in (reader.public_id, reader.user.email):
        return reader
    require(reader, Right.ROLES)
    if chat is not None and named in (chat.membership.public_id, chat.membership.user.email):
        return chat.membership
    by = {"user__email": named.strip().lower()} if isinstance(named, str) else {"public_id": named}
    found = Membership.objects.select_related("user").filter(ended_at=None, **by).first()
    if found is None:
        raise not_there("member", "member", named)
    return found


def _agent(reader: Membership, slug: str) -> Agent:
    agents = Agent.objects.seen_by(reader).filter(slug=slug) if slug else agents_to_talk_to(reader)
    found = agents.select_related("model__provider").defer("model__provider__api_key").first()
    if found is None:
        raise not_there("agent", "agent", slug) if slug else ChangeRefused("agent", "There is no agent yet.")
    return found


# -- In words ---------------------------------------------------------------------------------------------------------


def _explained(tool: Reasons, changes: tuple[Change, ...], subject: Subject) -> Explained:
    sentence = _sentence(tool, changes, subject)
    stop = tool.first_stop
    is_nobodys = tool.listed.is_nobodys and stop is not None and stop.short == NOT_OFFERED
    return Explained(tool, changes, f"{sentence} {NO_AGENT}" if is_nobodys else sentence, is_nobodys)


def _sentence(tool: Reasons, changes: tuple[Change, ...], subject: Subject) -> str:
    name = tool.spec.name
    reasons = [cell.reason for cell in tool.stops]
    if tool.is_sent:
        allowed = next(cell.reason for cell in tool.cells if cell.stage in ("grants", "role") and cell.kept)
        needed = next((f"; {cell.reason}" for cell in tool.cells if cell.stage == "router" and cell.reason), "")
        return f"{subject.agent} sends {name} for {subject.member}: {tool.cells[0].reason}; {allowed}{needed}."
    if len(reasons) == 1:
        end = "" if changes else " No single change of the configuration would let it through."
        return f"{subject.agent} does not send {name} for {subject.member}: {reasons[0]}.{end}"
    if changes:
        return f"{subject.agent} does not send {name} for {subject.member}: {'; and '.join(reasons)}."
    count = {2: "Two", 3: "Three"}.get(len(reasons), str(len(reasons)))
    return f"{count} things stop {name} for {subject.member}: {'; and '.join(reasons)}. All of them have to change."
