"""Shared parts of the catalogue's routes: partial bodies, refusals as errors, and the description of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

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
