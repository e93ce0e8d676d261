"""Models of knowledge: a graph of entities and relations, and series of numbers."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import MemberRow, NamedRow


class Entity(NamedRow):
    """A thing of the knowledge graph."""

    kind = models.CharField(max_length=50, blank=True)
    notes = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NamedRow.Meta):
        db_table = "capabilities_entity"


class Relation(MemberRow):
    """An arrow from one entity to another: Ada -works at-> Acme."""

    source = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="outgoing")
    label = models.CharField(max_length=100)
    target = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="incoming")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(MemberRow.Meta):
        db_table = "capabilities_relation"
        constraints = (models.UniqueConstraint(fields=["source", "label", "target"], name="relation_once"),)

    def __str__(self) -> str:
        return self.label


class Series(NamedRow):
    """Numbers measured over time."""

    unit = models.CharField(max_length=30, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NamedRow.Meta):
        db_table = "capabilities_series"


class SeriesPoint(MemberRow):
    """One number of a series; a moment has one."""

    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="points")
    at = models.DateTimeField()
    value = models.FloatField()

    class Meta(MemberRow.Meta):
        db_table = "capabilities_seriespoint"
        constraints = (models.UniqueConstraint(fields=["series", "at"], name="one_point_per_moment"),)

    def __str__(self) -> str:
        return f"{self.value} at {self.at}"
