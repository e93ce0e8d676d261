"""REST: categories."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.categories.writes import (
    MAX_KEYWORD,
    MAX_KEYWORDS,
    CategoryContent,
    create_category,
    delete_category,
    update_category,
)
from capabilities.common.api import checked_part, refusals
from capabilities.models import Category
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import (
    PAGE_PARAMETERS,
    page,
)


class CategoryOut(serializers.Serializer[Category]):
    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    keywords = serializers.ListField(child=serializers.CharField())
    is_core = serializers.BooleanField()


class CategoryPart(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=2_000, allow_blank=True, default="")
    keywords = serializers.ListField(
        child=serializers.CharField(max_length=MAX_KEYWORD), max_length=MAX_KEYWORDS, default=list
    )
    is_core = serializers.BooleanField(default=False)


class CategoryIn(CategoryPart):
    name = serializers.CharField(
        max_length=64, default="", help_text="For addresses and rules, given once. Left out: made from the title."
    )


class CategoryList(APIView):
    @extend_schema(
        operation_id="categories_list",
        summary="Categories",
        parameters=PAGE_PARAMETERS,
        responses=paged(CategoryOut),
    )
    def get(self, request: Request) -> Response:
        """List the catalogue's categories, by name."""
        api_member(request)
        return Response(page(request, Category.objects.all(), "name", lambda row: CategoryOut(row).data))

    @extend_schema(
        operation_id="categories_create", summary="Add a category", request=CategoryIn, responses={201: CategoryOut}
    )
    def post(self, request: Request) -> Response:
        """Add a category. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE)
        body = checked(CategoryIn, request)
        name = body.pop("name")
        with refusals():
            category = create_category(name, _category_content(body), actor=member)
        return Response(CategoryOut(category).data, status.HTTP_201_CREATED)


class CategoryDetail(APIView):
    @extend_schema(operation_id="categories_read", summary="One category", responses=CategoryOut)
    def get(self, request: Request, name: str) -> Response:
        """Return the category's words, and whether it is core."""
        api_member(request)
        return Response(CategoryOut(get_object_or_404(Category, name=name)).data)

    @extend_schema(
        operation_id="categories_update", summary="Change a category", request=CategoryPart, responses=CategoryOut
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change the given fields. A right limited to the category is enough for all but `is_core`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        category = get_object_or_404(Category, name=name)
        fields = ("title", "description", "keywords", "is_core")
        body = {field: getattr(category, field) for field in fields} | checked_part(CategoryPart, request)
        with refusals():
            return Response(CategoryOut(update_category(category, _category_content(body), actor=member)).data)

    @extend_schema(operation_id="categories_delete", summary="Remove a category", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Remove the category with the rules and grants on it. Refused (409 `in_use`) while tools are in it."""
        member = api_member(request, right=Right.CATALOGUE)
        category = get_object_or_404(Category, name=name)
        with refusals():
            delete_category(category, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _category_content(body: dict[str, Any]) -> CategoryContent:
    return CategoryContent(**body | {"keywords": tuple(body["keywords"])})
