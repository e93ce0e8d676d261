"""Fields that the rows of several kinds have over REST."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


def identity() -> serializers.UUIDField:
    return serializers.UUIDField(source="public_id")


def number() -> serializers.IntegerField:
    return serializers.IntegerField(help_text="What tools call it by; counted for each member.")


def text(limit: int, **more: Any) -> serializers.CharField:
    """Text that may be empty."""
    return serializers.CharField(max_length=limit, allow_blank=True, required=False, **more)


def page_text(limit: int, **more: Any) -> serializers.CharField:
    """Text whose blanks at both ends are kept."""
    return serializers.CharField(max_length=limit, trim_whitespace=False, **more)


def moment(**more: Any) -> serializers.DateTimeField:
    return serializers.DateTimeField(**more)
