"""Models of a member's contacts, and of messages between members of an organisation."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NumberedRow
from toolhub.tenants.models import Membership


class Person(NumberedRow):
    """Somebody that a member keeps in the address book."""

    name = models.CharField(max_length=200)
    email = models.CharField(max_length=254, blank=True)
    phone = models.CharField(max_length=50, blank=True)
    #: A birthday may be known without its year.
    birth_year = models.PositiveSmallIntegerField(null=True, blank=True)
    birth_month = models.PositiveSmallIntegerField(null=True, blank=True)
    birth_day = models.PositiveSmallIntegerField(null=True, blank=True)
    notes = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_person"

    def __str__(self) -> str:
        return self.name

    @property
    def birthday(self) -> str:
        """YYYY-MM-DD, MM-DD where the year is not known, or empty."""
        if not self.birth_month or not self.birth_day:
            return ""
        day = f"{self.birth_month:02}-{self.birth_day:02}"
        return f"{self.birth_year:04}-{day}" if self.birth_year else day


class Message(NumberedRow):
    """Message of one member of the organisation to another. `membership` is the one that it was written to."""

    sender = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, related_name="+")
    #: Stays when the sender has left.
    sender_name = models.CharField(max_length=300)
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_message"

    def __str__(self) -> str:
        return f"From {self.sender_name}"
