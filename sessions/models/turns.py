"""Turns and what they did. Rows only; how a turn moves on is in the ledger."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from capabilities.models import Agent, ToolVersion
from sessions.models.chats import ChatSession
from sessions.models.sets import ToolSet, VerdictSet
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.money import dollars

if TYPE_CHECKING:
    from sessions.models.gateway import ClientRequest


class TurnStatus(models.TextChoices):
    """State of a turn."""

    #: Accepted, and waiting for a worker or for the session's earlier turn.
    QUEUED = "queued", "Queued"
    #: A worker holds it, or did until a moment ago.
    RUNNING = "running", "Running"
    #: It waits, without a worker, for turns that its agent gave to others.
    WAITING_CHILD = "waiting_child", "Waiting for another agent"
    #: It waits, without a worker, for somebody to allow a call, or to answer a question.
    WAITING_APPROVAL = "waiting_approval", "Waiting for approval"
    WAITING_INPUT = "waiting_input", "Waiting for an answer"
    #: It waits, without a worker, for a far side that works on a call.
    WAITING_TASK = "waiting_task", "Waiting for a long task"
    #: It has its answer.
    DONE = "done", "Done"
    #: It ended without one; `error_code` says why.
    FAILED = "failed", "Failed"
    #: Somebody stopped it.
    CANCELLED = "cancelled", "Cancelled"
    #: Its deadline passed.
    EXPIRED = "expired", "Expired"


#: A turn in one of these waits for others: nobody runs it, and its deadline stands still.
WAITING_STATUSES = (
    TurnStatus.WAITING_CHILD,
    TurnStatus.WAITING_APPROVAL,
    TurnStatus.WAITING_INPUT,
    TurnStatus.WAITING_TASK,
)
#: A turn in one of these may still move on.
OPEN_STATUSES = (TurnStatus.QUEUED, TurnStatus.RUNNING, *WAITING_STATUSES)
#: Open turns, in words that a partial index has too: SQLite takes such an index only where the query repeats its
#: condition. A query over every session says both; one that names its session or its turn need not.
UNENDED = Q(ended_at=None)
#: Turns whose usage is still to be added to the hourly sums.
NOT_ROLLED_UP = Q(ended_at__isnull=False, is_rolled_up=False)


class Door(models.TextChoices):
    """Protocol of the gateway by which a turn came."""

    CHAT = "chat", "Chat completions"
    RESPONSES = "responses", "Responses"
    MCP = "mcp", "MCP"


class Turn(TenantModel):
    """One user message until its answer. The row is the queue: a worker that claims it owns it for one epoch."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="turns")
    #: Counts from 1 in its session; turns of one session run in this order, one at a time.
    seq = models.PositiveIntegerField()
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="turns")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="turns")
    message = models.TextField()
    #: How many files are attached to the message: `StepFile` without a step.
    attached = models.PositiveSmallIntegerField(default=0, db_default=0)
    #: Its model call carries no tools, whatever the agent has, and is its only one: a quick question, or `tools_off`.
    without_tools = models.BooleanField(default=False)
    #: The tools of its session were off when it was accepted, and nobody asked a quick question.
    tools_off = models.BooleanField(default=False)
    status = models.CharField(max_length=20, choices=TurnStatus, default=TurnStatus.QUEUED)
    answer = models.TextField(blank=True)
    error_code = models.CharField(max_length=40, blank=True)
    error_message = models.TextField(blank=True)
    #: Why its answer is not whole: `length` or `content_filter`; empty for one that is. And the seconds after which the
    #: provider that failed it said that another try is worth it.
    cut_by = models.CharField(max_length=20, blank=True, default="", db_default="")
    retry_after = models.PositiveIntegerField(null=True, blank=True)

    #: Protocol by which it came; empty for pages, the REST API and the service itself. A turn that has it has a
    #: ClientRequest.
    door = models.CharField(max_length=10, choices=Door, blank=True, default="")
    #: It has no message: it goes on from what stands in front of it.
    is_continuation = models.BooleanField(default=False)

    #: Ranges of turns before it that are not in its conversation: [[first, last], ...], in order, with turns of the
    #: conversation between them. The turn behind the last of each took the place of the first. A turn has the ranges
    #: of the turn that it goes on from.
    passed_over = models.JSONField(default=list, blank=True)

    #: Nobody answers what its calls would ask a person, as the agent says that a client named: tools of which each call
    #: asks are left out, and a call that asks is refused. A turn by delegation has it of the turn above.
    is_unattended = models.BooleanField(default=False)

    #: Client's key of its request, so that a second try makes no second turn.
    idempotency_key = models.CharField(max_length=255, blank=True)
    #: Key of a turn that the service submitted itself, by a schedule or a routine. No client can write it.
    origin_key = models.CharField(max_length=255, blank=True, default="")
    #: The call of another turn that this one answers, for a turn by delegation.
    parent_step = models.OneToOneField(
        "toolhub_sessions.Step", on_delete=models.CASCADE, null=True, blank=True, related_name="child_turn"
    )

    #: Rises with every claim; whoever writes with an older one is a zombie.
    epoch = models.PositiveIntegerField(default=0)
    owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    #: When a worker last took it: organisations, and members of one, are served in turn.
    claimed_at = models.DateTimeField(null=True, blank=True)
    #: Claims since the last finished step.
    attempts = models.PositiveIntegerField(default=0)
    #: Not before this; set when a provider asked to wait.
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    #: When a worker was last called for it.
    rang_at = models.DateTimeField(null=True, blank=True)
    #: While it is queued: until when it may wait. From its first claim on: until when it may run.
    deadline_at = models.DateTimeField()
    #: Since when it waits for somebody else: its deadline moves by as much as it waited.
    waiting_since = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    #: Text of the reply that the model is writing, so far, kept every half second or so, and the number of the
    #: event behind which it writes it: each try at each reply has one of its own. Empty as soon as the reply is a step.
    draft = models.TextField(blank=True)
    draft_event = models.PositiveIntegerField(default=0)

    #: The numbers of the last step and the last event; both count without gaps.
    last_step = models.PositiveIntegerField(default=0)
    last_event = models.PositiveIntegerField(default=0)

    #: The step whose result brought the first text from outside; 0 where that was there from the start, as in a later
    #: turn of the session; None while there is none.
    untrusted_since = models.PositiveIntegerField(null=True, blank=True)

    rounds = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    #: Whether some of these are our own count, because the provider sent none.
    usage_estimated = models.BooleanField(default=False)
    #: Billionths of a US dollar of the rounds that had a price, and whether some had none.
    cost = models.PositiveBigIntegerField(default=0)
    has_unpriced_rounds = models.BooleanField(default=False)
    #: For a turn by delegation, whose budgets it counts on beside its own agent's: {"turn": id of the turn at the top,
    #: "session": id of that turn's session, "began": when that turn was accepted, "agents": keys of the agents above}.
    charged_above = models.JSONField(default=dict, blank=True)
    #: Whether its usage stands in the hourly sums.
    is_rolled_up = models.BooleanField(default=False)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["session", "seq"], name="turn_seq_once"),
            models.UniqueConstraint(
                fields=["membership", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="turn_idempotency_key_once",
            ),
            models.UniqueConstraint(
                fields=["membership", "origin_key"], condition=~Q(origin_key=""), name="turn_origin_key_once"
            ),
        )
        indexes = (
            models.Index(fields=["status", "lease_until"], condition=UNENDED, name="unended_turns"),
            models.Index(fields=["parent_step"], condition=Q(parent_step__isnull=False), name="turns_of_parent_step"),
            # They begin with the status, which is the same in each row: SQLite checks it in the index then.
            models.Index(
                fields=["status", "organisation", "membership", "created_at"],
                condition=Q(status="queued"),
                name="queued_turns_of_member",
            ),
            models.Index(
                fields=["status", "organisation", "membership", "parent_step"],
                condition=Q(status="queued", parent_step__isnull=False),
                name="queued_child_turns",
            ),
            models.Index(fields=["session", "seq"], condition=UNENDED, name="unended_turns_of_session"),
            models.Index(fields=["ended_at", "id"], condition=NOT_ROLLED_UP, name="turns_to_roll_up"),
            models.Index(
                fields=["agent", "-ended_at"], condition=Q(ended_at__isnull=False), name="ended_turns_of_agent"
            ),
            models.Index(
                fields=["organisation", "-claimed_at"],
                condition=Q(claimed_at__isnull=False),
                name="served_organisation",
            ),
            models.Index(
                fields=["membership", "-claimed_at"],
                condition=Q(claimed_at__isnull=False),
                name="served_member",
            ),
        )

    def __str__(self) -> str:
        return f"Turn {self.seq}"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def replaces(self) -> int | None:
        """Number of the turn whose place it takes in the conversation; None for one that only goes on."""
        first, last = self.passed_over[-1] if self.passed_over else (0, 0)
        return first if first and last == self.seq - 1 else None

    def passing_over(self, first: int, last: int) -> list[list[int]]:
        """Return its ranges with one more behind them, as a turn has them that leaves these out as well."""
        ranges: list[list[int]] = self.passed_over
        if first > last:
            return ranges
        if ranges and ranges[-1][1] == first - 1:
            return [*ranges[:-1], [ranges[-1][0], last]]
        return [*ranges, [first, last]]

    def passes_over(self, seq: int) -> bool:
        """Return whether the turn of this number stands before it and not in its conversation."""
        return any(first <= seq <= last for first, last in self.passed_over)

    def in_front(self, first: int = 1) -> list[range]:
        """Return the numbers, from `first` on, of the turns that its conversation goes on from, in order."""
        found = []
        for begin, end in [*self.passed_over, [self.seq, self.seq]]:
            if first < begin:
                found.append(range(first, begin))
            first = max(first, end + 1)
        return found

    @property
    def is_quick_question(self) -> bool:
        """True where the sender asked for an answer without tools, for this message alone."""
        return self.without_tools and not self.tools_off

    @property
    def asked(self) -> ClientRequest | None:
        """Request of a client of the gateway beside the message; None for other turns. One query, once."""
        return self.client_request if self.door else None

    @property
    def is_waiting(self) -> bool:
        """True where the turn waits for other agents, for people or for a far side."""
        return self.status in WAITING_STATUSES

    @property
    def usage(self) -> dict[str, int | bool | str]:
        """Tokens as the provider counted them, summed over the rounds; `estimated` where some are our own count.

        `cost` is in dollars, as a decimal text; `unpriced` where some rounds had no price and are not in it.
        """
        return {
            "rounds": self.rounds,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "estimated": self.usage_estimated,
            "cost": dollars(self.cost),
            "unpriced": self.has_unpriced_rounds,
        }


class StepKind(models.TextChoices):
    MODEL = "model", "Model call"
    TOOL = "tool", "Tool call"
    NOTE = "note", "Note"
    TOOLS = "tools", "Tools added"
    #: A call that a client made itself, in place of a model's reply: nothing was asked of a model.
    CLIENT = "client", "Call by a client"


class StepStatus(models.TextChoices):
    """State of a step."""

    #: The model asked for the call, and it has not begun: after a crash it is simply run.
    PENDING = "pending", "Waiting"
    #: The intent is written; the call may be under way, or may have happened.
    STARTED = "started", "Running"
    #: It has begun, and goes on when its member, or a far side, has done something.
    WAITING = "waiting", "Waiting to go on"
    DONE = "done", "Done"
    #: The call was made and answered with an error, or could not be made.
    FAILED = "failed", "Failed"
    #: Not permitted, not in the selection, or not run for another reason that is the answer.
    REFUSED = "refused", "Refused"
    #: A crash hit between the start and the result of a call that is not repeated.
    UNKNOWN = "unknown", "Outcome unknown"
    #: A call of a tool of the client's own: the turn ended with it, and its result comes with a later one.
    RETURNED = "returned", "Left to the client"


#: A call in one of these has no answer yet.
UNANSWERED = (StepStatus.PENDING, StepStatus.STARTED, StepStatus.WAITING)


class Step(TenantModel):
    """One stored row of a turn: a model call, a tool call, a note, tools that were added to the conversation."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="steps")
    #: Counts from 1 in its turn.
    index = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=StepKind)
    status = models.CharField(max_length=12, choices=StepStatus)
    #: The model call that it is or belongs to, from 1.
    round = models.PositiveIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    #: Model call: what it said. Note: what there is to know. Tools added: what the model reads beside them.
    text = models.TextField(blank=True)
    #: Model call: the calls it asked for, [{"id", "name", "arguments"}], in a form that any provider takes back.
    tool_calls = models.JSONField(default=list)
    finish_reason = models.CharField(max_length=40, blank=True)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    #: Part of the input that was written to the provider's cache; part of the output that the model thought.
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    #: Whether the provider's count was missing or impossible, so that ours stands here.
    usage_estimated = models.BooleanField(default=False)
    #: Model call: billionths of a US dollar, None where the model had no price; and where the price is from: the price
    #: list with its version, or "own price" with the moment that it began.
    cost = models.PositiveBigIntegerField(null=True, blank=True)
    price_source = models.CharField(max_length=100, blank=True, default="")
    #: Model call, counted by us before it was sent: tokens of the tools' definitions, of the results of this turn's
    #: calls, of the other messages, and behind it of the answer; and what all permitted tools would have been.
    tool_tokens = models.PositiveIntegerField(default=0)
    result_tokens = models.PositiveIntegerField(default=0)
    history_tokens = models.PositiveIntegerField(default=0)
    answer_tokens = models.PositiveIntegerField(default=0)
    all_tool_tokens = models.PositiveIntegerField(default=0)
    #: Model call that is the first of a selection: what routing did, as
    #: `capabilities/choosing/pipeline/routing.py` writes it.
    routing = models.JSONField(default=dict, blank=True)
    #: The provider's own usage object.
    raw_usage = models.JSONField(default=dict, blank=True)
    #: Model call: which model answered, as `ResolvedModel.origin` writes it.
    origin = models.CharField(max_length=500, blank=True, default="")
    #: Model call: what goes back to that model unread (signatures, encrypted reasoning), as JSON, byte for byte. Tools
    #: added: the items of the conversation, a line each, as they went out and go out again.
    extras = models.TextField(blank=True, default="")
    #: Tools of a model call, and (first round of a selection) the verdicts of their selection. For tools added: those.
    tool_set = models.ForeignKey(ToolSet, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    verdict_set = models.ForeignKey(VerdictSet, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    #: Model call of an agent that adds tools to the conversation: those that stood in `tools`.
    declared_set = models.ForeignKey(
        ToolSet, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    #: Model call: the session's count of loads that its tools were selected at.
    load_count = models.PositiveIntegerField(default=0)
    #: Model call: bytes of its tools and messages, and how many of them, from the front, are those of the same agent's
    #: last call in the session: what a provider's prompt cache can know already. A message counts whole or not at all.
    prompt_bytes = models.PositiveBigIntegerField(default=0)
    prefix_bytes = models.PositiveBigIntegerField(default=0)

    #: Tool call: its place in the model's reply, from 0, and the id that its result answers to.
    call_index = models.PositiveIntegerField(default=0)
    tool_call_id = models.CharField(max_length=64, blank=True)
    tool_name = models.CharField(max_length=200, blank=True)
    #: The tool that the model called in order to call this one, or empty.
    called_through = models.CharField(max_length=64, blank=True)
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    arguments = models.TextField(blank=True)
    #: One line for people.
    display = models.CharField(max_length=300, blank=True)
    #: The whole result, and the part of it that the model got to see.
    result = models.TextField(blank=True)
    result_sent = models.TextField(blank=True)
    #: Result as hooks changed it, before it was cut; empty where they left it as it is.
    hooked_result = models.TextField(blank=True, default="")
    #: Effects of hooks at the call, in their order: `capabilities/contract/hook_phases.Trace` as JSON.
    hooks = models.JSONField(default=list, blank=True)
    #: Whether the call itself could not be understood: no such tool, or arguments that do not fit.
    is_malformed = models.BooleanField(default=False)
    #: Result as data, where its tool sent some. Tools added: {"added": names, "unavailable": all names that were
    #: declared and are not to be called}. Model call whose provider searched tools: {"found": names}.
    structured = models.JSONField(null=True, blank=True)
    #: Tool call: names of tools that its answer promises for the next model call.
    promised = models.JSONField(default=list, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["turn", "index"], name="step_index_once"),
            models.UniqueConstraint(
                fields=["turn", "round", "call_index"], condition=Q(kind="tool"), name="step_answers_a_call_once"
            ),
        )
        indexes = (
            models.Index(fields=["organisation", "tool_name", "-id"], condition=Q(kind="tool"), name="calls_of_tool"),
            models.Index(
                fields=["declared_set"], condition=Q(declared_set__isnull=False), name="steps_of_declared_set"
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.index}"

    @property
    def model_name(self) -> str:
        """Model call: the model that answered; empty in rows of before this was stored."""
        return self.origin.split(" ", 2)[2] if self.origin else ""

    @property
    def result_for_model(self) -> str:
        """The whole of what the model may read of the result: what hooks took out of it stays out."""
        return self.hooked_result or self.result

    @property
    def is_unanswered(self) -> bool:
        return self.status in UNANSWERED

    @property
    def seconds(self) -> float | None:
        return (self.ended_at - self.started_at).total_seconds() if self.ended_at else None

    def as_message(self) -> dict[str, Any]:
        """Return this step as a message of the conversation; a note is none."""
        if self.kind == StepKind.TOOL:
            return {"role": "tool", "tool_call_id": self.tool_call_id, "content": self.result_sent}
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in self.tool_calls
            ]
        return message


class TurnEvent(TenantModel):
    """Event of a turn, in order, for those who watch. Appended, never changed."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="events")
    #: Counts from 1 without gaps.
    number = models.PositiveIntegerField()
    type = models.CharField(max_length=40)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["turn", "number"], name="event_number_once"),)

    def __str__(self) -> str:
        return f"{self.number} {self.type}"
