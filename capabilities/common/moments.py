"""Moments by the database's clock, which all processes share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, Value
from django.db.models.expressions import CombinedExpression, Expression
from django.db.models.functions import Now


def from_now(seconds: float | Expression) -> ExpressionWrapper[Any]:
    """Return the moment so many seconds from the database's now."""
    if isinstance(seconds, Expression):
        length: Expression = seconds
    else:
        length = Value(timedelta(seconds=seconds), output_field=DurationField())
    moment = CombinedExpression(Now(), "+", length)
    return ExpressionWrapper(moment, output_field=DateTimeField())
