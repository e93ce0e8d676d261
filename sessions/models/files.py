"""Files of turns: those that came with the results of calls, and those that members attached to messages."""

from __future__ import annotations

from django.db import models

from sessions.models.turns import Step, Turn
from toolhub.tenants.rows.guarded import PublicModel

#: Files that were attached to messages.
ATTACHED = models.Q(step=None)


class StepFile(PublicModel):
    """One file of a call's result, for people and for the session, never for the model; or, without a step, one that
    was attached to the message of its turn. It goes with its step, or with its turn."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="files", null=True, blank=True)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="files")
    #: Its place among the files of the result, or of the message, from 0.
    place = models.PositiveSmallIntegerField(default=0)
    name = models.CharField(max_length=200)
    #: As the far side says, and of an attached file as its bytes show: nothing is shown because of it, but images of a
    #: few types.
    media_type = models.CharField(max_length=140)
    size = models.PositiveIntegerField()
    content = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["step", "place"], name="file_of_step_once"),
            models.UniqueConstraint(fields=["turn", "place"], condition=ATTACHED, name="file_of_message_once"),
        )

    def __str__(self) -> str:
        return self.name
