"""A client's request becomes a turn: whose session it belongs to, and what stands in front of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from capabilities.contract.knobs import KNOBS
from capabilities.contract.result_cap import cut, result_cap
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.doors.chats.writes import open_session
from sessions.doors.gateway.asked_people import tells_to_wait
from sessions.doors.gateway.call_ids import CallId, read_id
from sessions.doors.gateway.conversations import GatewayRequest, Message, images_in, text_of
from sessions.doors.gateway.errors import Invalid
from sessions.doors.gateway.following import BETWEEN, MAX_ROUNDS
from sessions.doors.gateway.images import as_files, stored
from sessions.models import (
    OPEN_STATUSES,
    ChatSession,
    ClientRequest,
    ClientSession,
    Door,
    SessionClient,
    Step,
    StepKind,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns import accepting
from sessions.turns.accepting import Accepted, ClientAsks
from sessions.turns.fencing import Conflict
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.statements import Select, param

#: Turns that a stored conversation is compared by, at most: a longer one counts as the client sends it.
MAX_COMPARED = 500
#: Text that the model reads of a result in which the client says nothing.
EMPTY = "(empty)"
#: A role, and what it says.
Words = tuple[str, str]


@dataclass(frozen=True)
class Caller:
    """Caller of the gateway: its member and token, its door, and what the request says beside its conversation."""

    member: Membership
    token: ApiToken
    door: Door
    body: Mapping[str, Any]
    #: The client's name of its conversation; "" for none.
    key: str = ""
    idempotency_key: str = ""

    @property
    def digest(self) -> str:
        """Hash that a second request with the same Idempotency-Key must agree with: of the route, the token, the name
        of the conversation and the body."""
        asks = [self.door, self.token.pk, self.key, self.body]
        text = json.dumps(asks, sort_keys=True, ensure_ascii=False)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_CALLED = Select(
    lambda: (
        agents_to_talk_to(param(ChatSession, "membership", "member"))
        .select_related("model__provider")
        .defer("model__provider__api_key")
        .filter(slug=param(Agent, "slug", "name"))
    )
)


def agent_called(member: Membership, name: str) -> Agent:
    """The agent that clients call a model. Raises Invalid, the same for one that is off, not offered to the member, or
    another organisation's."""
    agent: Agent | None = next(iter(_CALLED.instances(name=name[:200], member=member.pk)), None)
    if agent is None:
        raise Invalid(
            "There is no such model here, or you may not use it. GET /v1/models lists yours.",
            "model",
            "model_not_found",
            status=404,
        )
    return agent


def take(caller: Caller, wanted: GatewayRequest) -> Accepted:
    """Put the request on record as a turn, and its results beside the calls that they answer. One transaction.

    Raises Invalid, and Conflict and NoRoom as `accepting.accept`.
    """
    agent = agent_called(caller.member, wanted.agent)
    if known := _same_request(caller):
        return Accepted(known, created=False)
    with transaction.atomic():
        earlier: Sequence[Message] | None = None
        images = wanted.images
        if wanted.follows is not None:
            session, message = _followed(caller, wanted.follows, wanted, agent)
        elif (answered := _answered(caller, wanted, agent)) is not None:
            session, message = answered, text_of(wanted.message, "messages", most=accepting.MAX_MESSAGE)
        else:
            session, message = _session(caller, agent), _last_message(wanted)
            images = images_in(wanted.messages[-1:])
            earlier = None if _stands_in(session, wanted) else _in_front(wanted)
        earlier, images_before = (None, []) if earlier is None else stored(earlier, images)
        files = as_files([*images, *images_before], "messages")
        if wanted.has_results and not session.is_untrusted:
            ChatSession.objects.filter(pk=session.pk).update(is_untrusted=True)
        asks = ClientAsks(
            door=caller.door,
            token=caller.token,
            digest=caller.digest,
            earlier=earlier,
            instructions=wanted.instructions,
            tools=wanted.tools,
            parameters=wanted.parameters,
            is_stored=wanted.is_stored,
            files=files[len(images) :],
        )
        accepted = accepting.accept(
            session,
            message,
            member=caller.member,
            agent=agent,
            idempotency_key=caller.idempotency_key,
            asks=asks,
            files=files[: len(images)],
        )
        if not accepted.created:  # the same request came a moment before: what was made for this one goes
            transaction.set_rollback(True)
        return accepted


def _same_request(caller: Caller) -> Turn | None:
    """The turn of an earlier request with this Idempotency-Key. Raises Conflict where it asked for something else, or
    where its session was deleted."""
    if not caller.idempotency_key:
        return None
    turns = Turn.objects.select_related("session")
    known = turns.filter(membership=caller.member, idempotency_key=caller.idempotency_key).first()
    if known is not None and (known.asked is None or known.asked.digest != caller.digest):
        raise Conflict("idempotency_key_reused", "This Idempotency-Key came with another request before.")
    if known is not None and known.session.deleted_at is not None:
        raise Conflict("deleted", "The session of the request with this Idempotency-Key was deleted.")
    return known


# -- The session -------------------------------------------------------------------------------------------------------


def _session(caller: Caller, agent: Agent) -> ChatSession:
    """The session that the client names, made where it is new; without a name one for this request alone. Raises
    Conflict where it waits for a person."""
    if not caller.key:
        return open_session(caller.member, agent, client=SessionClient.OPENAI, is_throwaway=True)
    known = _known(caller)
    if known is None:
        try:
            with transaction.atomic():
                session = open_session(caller.member, agent, client=SessionClient.OPENAI)
                ClientSession.objects.create(
                    organisation_id=session.organisation_id, token=caller.token, key=caller.key, session=session
                )
            return session
        except IntegrityError:  # another request of the same conversation was quicker
            known = _known(caller)
            assert known is not None
    waits = known.turns.filter(status__in=(TurnStatus.WAITING_APPROVAL, TurnStatus.WAITING_INPUT))
    if waits.exists():
        raise Conflict("waits_for_person", "This conversation waits for a person: answer that first.")
    return known


def _known(caller: Caller) -> ChatSession | None:
    kept = ClientSession.objects.filter(token=caller.token, key=caller.key, session__deleted_at=None)
    found = kept.select_related("session__agent__model__provider").first()
    if found is None:
        ClientSession.objects.filter(token=caller.token, key=caller.key).delete()  # its session was deleted
    return found.session if found else None


def _stands_in(session: ChatSession, wanted: GatewayRequest) -> bool:
    """Return whether the session's stored turns are what the client has in front of its message. They know more than
    the client: the calls of our own tools. A client that sends its last message alone means them in any case. Results
    that go with no stored turn stand nowhere else."""
    if wanted.results:
        return False
    earlier = _in_front(wanted)
    return not earlier or _is_same(session, _words(earlier), stored_words(session))


def _is_same(session: ChatSession, sent: Sequence[Words], stored: Sequence[Words] | None) -> bool:
    """Return whether the client has the stored words; it has not read the outcome of a turn that waited for a
    person."""
    if stored is None or len(sent) != len(stored):
        return False
    return all(
        mine == its or (mine[0] == its[0] and tells_to_wait(mine[1], session.pk))
        for mine, its in zip(sent, stored, strict=True)
    )


def _last_message(wanted: GatewayRequest) -> str:
    """The turn's own message; "" where it goes on from results."""
    last = wanted.messages[-1]
    return "" if last["role"] == "tool" else str(last["content"])


def _in_front(wanted: GatewayRequest) -> Sequence[Message]:
    """The messages in front of the turn's own; all of them where it goes on from results."""
    return wanted.messages[:-1] if _last_message(wanted) else wanted.messages


def _words(messages: Sequence[Message]) -> list[Words]:
    """Return role and words of each message, without calls and results."""
    texts = ((message["role"], (message["content"] or "").strip()) for message in messages if message["role"] != "tool")
    return [(role, text) for role, text in texts if text]


def stored_words(session: ChatSession) -> list[Words] | None:
    """Return role and words of each message of the session's conversation; None where a turn is open, or where there
    are too many. Three queries."""
    turns = list(session.turns.order_by("-seq")[: MAX_COMPARED + 1])
    if len(turns) > MAX_COMPARED or any(turn.status in OPEN_STATUSES for turn in turns):
        return None
    turns = [turn for turn in turns if not turns[0].passes_over(turn.seq)]
    requests = ClientRequest.objects.filter(turn__in=turns, earlier__isnull=False).order_by("-turn__seq")
    begin = requests.values_list("turn__seq", "earlier").first()
    found = _words(begin[1] or ()) if begin else []
    texts = answers_by_turn(turns)
    for turn in reversed(turns):
        if begin and turn.seq < begin[0]:
            continue
        if turn.message.strip():
            found.append(("user", turn.message.strip()))
        if text := texts[turn.pk]:
            found.append(("assistant", text))
    return found


def answers_by_turn(turns: Sequence[Turn]) -> dict[Any, str]:
    """Return the assistant's words in each of these turns, by the turn's key, as clients get them: the words of all its
    replies, and that it met its limit of rounds. One query."""
    steps = Step.objects.filter(turn__in=turns, kind=StepKind.MODEL, status=StepStatus.DONE).exclude(text="")
    texts: dict[Any, list[str]] = {turn.pk: [] for turn in turns}
    for turn_id, text in steps.order_by("turn", "index").values_list("turn_id", "text"):
        texts[turn_id].append(text)
    for turn in turns:
        if turn.error_code == MAX_ROUNDS or not texts[turn.pk]:
            texts[turn.pk].append(turn.answer)
    return {turn.pk: BETWEEN.join(texts[turn.pk]).strip() for turn in turns}


# -- Results of the client's own tools ---------------------------------------------------------------------------------


def _answered(caller: Caller, wanted: GatewayRequest, agent: Agent) -> ChatSession | None:
    """The session of the turn whose calls the request's results answer, where that is its last one and was left to this
    token: the results are stored with the calls. None where the conversation counts as the client sends it. Found by
    the ids alone. Raises Invalid where one is missing."""
    results = wanted.results
    ids = [read_id(message["tool_call_id"]) for message in results]
    turn_ids = {each.turn for each in ids if each is not None}
    if len(turn_ids) != 1 or None in ids:
        return None
    turn = _turns_of(caller).filter(pk__in=turn_ids).first()
    if turn is None or _goes_on_elsewhere(turn):
        return None
    left = _left(turn)
    given = {str(each) for each in ids}
    if set(left) - given:
        raise Invalid(f"The call {min(set(left) - given)} has no result.", "messages")
    if given - set(left):
        return None
    answers = _results_in_order(left, results)
    if any(step.result and step.result != answers[key] for key, step in left.items()):
        return None  # answered before, and otherwise
    return turn.session if _keep_results(left, results, agent) else None


def _followed(caller: Caller, follows: UUID, wanted: GatewayRequest, agent: Agent) -> tuple[ChatSession, str]:
    """The session of the turn that the client names, and the message behind it, "" for results alone, which are
    stored with its calls. Raises Invalid."""
    turn = _turns_of(caller).filter(pk=follows, client_request__is_stored=True).first()
    param = "previous_response_id"
    if turn is None:
        raise Invalid("There is no such response here, or it was not stored.", param, "previous_response_not_found")
    went_on = Invalid("The conversation went on behind this response: name its last one.", param)
    if _goes_on_elsewhere(turn):
        raise went_on
    results, roles = wanted.results, [message["role"] for message in wanted.messages]
    if roles != ["tool"] * len(results) + ["user"] * (len(roles) - len(results)) or not roles:
        raise Invalid("Behind a previous response, send outputs of its calls, then messages of the user.", "input")
    if roles[-1] == "user" and not wanted.message.strip():
        raise Invalid("The message is empty.", "input")
    left, given = _left(turn), {message["tool_call_id"] for message in results}
    if wrong := left.keys() ^ given:
        which = min(wrong)
        is_missing = which in left
        raise Invalid(f"The call {which} has no output." if is_missing else f"{which} is no call of it.", "input")
    if not _keep_results(left, results, agent):
        raise went_on
    return turn.session, text_of(wanted.message, "input", most=accepting.MAX_MESSAGE)


def _turns_of(caller: Caller) -> QuerySet[Turn]:
    """Turns that this token's requests came to and that were answered, with what goes on from one at hand."""
    turns = Turn.objects.select_related("session__agent__model__provider")
    own = turns.filter(membership=caller.member, client_request__token=caller.token)
    return own.filter(status=TurnStatus.DONE, session__deleted_at=None)


def _goes_on_elsewhere(turn: Turn) -> bool:
    """Return whether a later turn of the session went on from it, or begins anew. One that failed did neither."""
    later = Turn.objects.filter(session=turn.session_id, seq__gt=turn.seq)
    return later.filter(Q(is_continuation=False) | Q(status__in=(TurnStatus.DONE, *OPEN_STATUSES))).exists()


def _left(turn: Turn) -> dict[str, Step]:
    """The turn's calls that were left to the client, by their ids."""
    steps = Step.objects.filter(turn=turn, kind=StepKind.TOOL, status=StepStatus.RETURNED).order_by("index")
    return {str(CallId(turn.pk, step.round, step.call_index)): step for step in steps}


def _results_in_order(left: Mapping[str, Step], results: Sequence[Message]) -> dict[str, str]:
    """The results by the ids of their calls, in the order of these."""
    by_call = {message["tool_call_id"]: message["content"] or EMPTY for message in results}
    return {key: by_call[key] for key in left}


def _keep_results(left: Mapping[str, Step], results: Sequence[Message], agent: Agent) -> bool:
    """Store the results with the calls that were left, and as much of each as the model gets to see. False where
    another request stored some in this moment: then nothing is stored."""
    most = result_cap(
        KNOBS["max_result_chars"].default,
        resolve_model(agent.model, agent).context_window,
        share=settings.TOOLHUB_RESULT_SHARE,
        minimum=settings.TOOLHUB_MIN_RESULT_CHARS,
    )
    for key, text in _results_in_order(left, results).items():
        kept = Step.objects.filter(pk=left[key].pk, result="").update(result=text, result_sent=cut(text, most))
        if not kept and not left[key].result:
            return False
    return True
