"""The agent's second model, which takes over in the middle of a turn."""

from __future__ import annotations

from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import LanguageModel
from sessions.loop.clients.errors import ModelError
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.model_calls.client_requests import as_asked
from sessions.turns import ledger

#: Errors that keep a model from answering for now, or for ever, whatever the request.
UNAVAILABLE = {
    "provider_rate_limit": "is at its limit",
    "provider_error": "failed",
    "provider_unreachable": "cannot be reached",
    "provider_timeout": "did not answer in time",
    "provider_reset": "broke off",
    "provider_credit": "has no credit left",
    "provider_disabled": "is switched off",
    "model_gone": "does not have the model any more",
}


def fall_back(turn: RunningTurn, error: ModelError) -> None:
    """Let the agent's second model go on with the turn, with an event and a note. Raises the error where there is none,
    where it took over already, or where the error would meet any model.

    The conversation has to be made anew from the stored steps: what came unread with the first model's replies stays
    out, and the window may be another. One query, beside what is written.
    """
    if error.code not in UNAVAILABLE or turn.row.agent.fallback_model_id is None:
        raise error
    model = LanguageModel.objects.select_related("provider").get(pk=turn.row.agent.fallback_model_id)
    first, second = turn.model, as_asked(resolve_model(model, turn.row.agent), turn.row)
    if first.public_id == second.public_id:
        raise error
    turn.go_on_with(second)
    because = f"{first.provider.name} {UNAVAILABLE[error.code]}"
    ledger.write_event(turn.claim, "model_fallback", {"from": first.name, "to": second.name, "error_code": error.code})
    text = f"{second.name} of {second.provider.name} goes on in place of {first.name}: {because}."
    ledger.add_note(turn.claim, text)
