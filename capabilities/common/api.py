"""Shared parts of the catalogue's routes: partial bodies, refusals as errors, and the description of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial
from typing import Any, cast

from django.db.models import Field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.exceptions import PermissionDenied as Forbidden
from rest_framework.request import Request

from capabilities.common.refused import ChangeRefused
from toolhub.tenants.models import slug_validator
from toolhub.tenants.rest.api import checked
from toolhub.tenants.rest.wire import Refused


@contextmanager
def refusals() -> Iterator[None]:
    """A ChangeRefused as the API tells it: 403 where it is more than the member may do, 409 where what is on record
    stands in the way, else 400 with the field."""
    try:
        yield
    except ChangeRefused as error:
        if error.code in ("in_use", "conflict"):
            raise Refused(error.code, str(error)) from error
        if error.code == "forbidden":
            raise Forbidden({error.field or "detail": ErrorDetail(str(error), code=error.code)}) from error
        raise ValidationError({error.field: ErrorDetail(str(error), code=error.code)}) from error


def checked_part(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The body of a PATCH: the fields that it has, each as the serializer wants it."""
    part = cast("type[serializers.Serializer[Any]]", partial(serializer, partial=True))
    return checked(part, request)


MADE_FROM_NAME = "Left out of something new: made from its name."


class SlugField(serializers.CharField):
    """A short name for addresses."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=63, validators=[slug_validator], **kwargs)


# No docstrings below: the OpenAPI document would describe the bodies of all rooms by them.


class _Columns(serializers.ModelSerializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return deepcopy(_fields_of(type(self)))

    def get_validators(self) -> list[Any]:
        return []  # the write looks for names in use


@cache
def _fields_of(kind: type[_Columns]) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Return the fields, made once: the model is the same for each row and request."""
    return super(_Columns, kind()).get_fields()


class ColumnsOut(_Columns):
    #: Columns of the model, as they are stored, and the fields that the class declares.
    def build_standard_field(self, field_name: str, model_field: Field[Any, Any]) -> Any:
        kind, options = super().build_standard_field(field_name, model_field)
        return kind, {name: options[name] for name in ("choices", "allow_null") if name in options}


class ColumnsIn(_Columns):
    #: Columns of the model, to be set: their bounds, words and defaults; and the fields that the class declares.
    def build_standard_field(self, field_name: str, model_field: Field[Any, Any]) -> Any:
        kind, options = super().build_standard_field(field_name, model_field)
        if options.pop("required", True) is False:
            options["default"] = model_field.get_default()
        return kind, {name: value for name, value in options.items() if name != "label"}
