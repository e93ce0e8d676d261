"""Columns that people set, as the model describes each once: their names, what the audit records, and the check of
their values. Forms (`ColumnsForm`) and REST (`capabilities/common/api.py`) make their fields of the same columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator
from django.db.models import Field, IntegerField, Model

from capabilities.common.refused import ChangeRefused


def columns_of(model: type[Model], *first: str) -> tuple[str, ...]:
    """Return `first`, then the names of the other columns that people set, in the order of the model."""
    own = (each for each in model._meta.concrete_fields if each.editable and not each.primary_key)
    return (*first, *(each.name for each in own if each.name not in ("organisation", *first)))


def default_of(model: type[Model], name: str) -> Any:
    """Return what a row has in this column where nothing is said."""
    return column(model, name).get_default()


def column(model: type[Model], name: str) -> Field[Any, Any]:
    found: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
    return found


def between(low: float, high: float) -> list[BaseValidator]:
    """Return the validators of a number with these bounds."""
    return [MinValueValidator(low), MaxValueValidator(high)]


def audited(row: Model, names: Iterable[str]) -> dict[str, Any]:
    """Return these columns for the audit: a row that one names as its text, "" where it names none."""
    return {name: _audited(column(type(row), name), getattr(row, name)) for name in names}


def _audited(field: Field[Any, Any], value: Any) -> Any:
    if field.is_relation:
        return str(value or "")
    return str(value) if isinstance(value, str) else value


def check_columns(
    model: type[Model], content: object, names: Iterable[str], refused: type[ChangeRefused] = ChangeRefused
) -> None:
    """Raise ChangeRefused for a value that is none of its column's choices, or outside its bounds."""
    for name in names:
        field, value = column(model, name), getattr(content, name)
        choices = [choice for choice, _ in field.flatchoices]
        if choices and value not in choices and not (field.blank and value == ""):
            raise refused(name, f"Choose one of {', '.join(choices)}.")
        low, high = _bounds(field)
        if value is not None and low is not None and high is not None and not low <= value <= high:
            or_nothing = ", or nothing" if field.null else ""
            kind = "whole number" if isinstance(field, IntegerField) else "number"
            raise refused(name, f"Give a {kind} from {low:,.10g} to {high:,.10g}{or_nothing}.")


def _bounds(field: Field[Any, Any]) -> list[Any]:
    """Return the least and the greatest value; None where the column has no such bound of its own."""
    kinds = (MinValueValidator, MaxValueValidator)
    return [next((each.limit_value for each in field.validators if isinstance(each, kind)), None) for kind in kinds]


def form_field(field: Field[Any, Any], **options: Any) -> Any:
    """Return the form's field of a column, with its bounds."""
    low, high = _bounds(field)
    bounds = {"min_value": low, "max_value": high} if low is not None else {}
    return field.formfield(**bounds | options)


class ColumnsForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form with a field for each column of its model that it does not declare itself. It makes no row."""

    def _post_clean(self) -> None:
        """Check nothing by the model: the write does, for REST too, and in the words of the page."""

    def columns(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of these columns; a choice that was left out is the default."""
        return {name: self._value(name) for name in names}

    def _value(self, name: str) -> Any:
        value, field = self.cleaned_data[name], column(self._meta.model, name)
        return field.get_default() if value == "" and field.choices else value
