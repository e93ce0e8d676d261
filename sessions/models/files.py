"""Files that came with the results of calls."""

from __future__ import annotations

from django.db import models

from sessions.models.turns import Step, Turn
from toolhub.tenants.rows.guarded import PublicModel


class StepFile(PublicModel):
    """One file of a call's result: for people and for the session, never for the model. It goes with its step."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="files")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="files")
    #: Its place among the files of the result, from 0.
    place = models.PositiveSmallIntegerField(default=0)
    name = models.CharField(max_length=200)
    #: As the far side says: nothing is shown because of it, but images of a few types.
    media_type = models.CharField(max_length=140)
    size = models.PositiveIntegerField()
    content = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["step", "place"], name="file_of_step_once"),)

    def __str__(self) -> str:
        return self.name
