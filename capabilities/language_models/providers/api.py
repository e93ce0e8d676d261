"""REST: providers and their models. Keys go in and never come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import MADE_FROM_NAME, ColumnsIn, ColumnsOut, SlugField, checked_part, refusals
from capabilities.common.columns import column, columns_of
from capabilities.common.secrets import masked_stored
from capabilities.common.tokens import tokenizer_of
from capabilities.language_models.providers.knobs import KNOBS
from capabilities.language_models.providers.learning import forget_lesson
from capabilities.language_models.providers.lessons import lessons_of
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.language_models.providers.vendors import OFFLINE, PRESETS, preset, vendor_of
from capabilities.language_models.providers.writes import (
    PROVIDER_COLUMNS,
    ModelContent,
    ProviderContent,
    delete_model,
    delete_provider,
    model_content,
    save_model,
    save_provider,
)
from capabilities.models import LanguageModel, Provider
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

MAX_KEY = 1_000


class CallsOut(ColumnsOut):
    """Settings of a model's calls, as they are set on the model or on an agent."""

    reasoning_effort = serializers.CharField(help_text="Empty: not set.")
    max_output_tokens = serializers.IntegerField(allow_null=True, help_text="Of one reply.")


class CallsIn(ColumnsIn):
    """Settings of a model's calls, to be set. Those that an agent leaves empty are the model's, those that the model
    leaves empty the vendor's."""


class ProviderOut(ColumnsOut):
    base_url = serializers.CharField(help_text="Empty: the offline model.")
    vendor = serializers.SerializerMethodField(help_text="Who is behind the address; `other` where nobody known is.")
    api_key = serializers.SerializerMethodField(help_text="Masked.")
    dialect = serializers.CharField()

    class Meta:
        model = Provider
        fields = columns_of(Provider, "slug", "name", "base_url", "vendor", "api_key")

    def get_vendor(self, provider: Any) -> str:
        return (vendor_of(provider.base_url) if provider.base_url else OFFLINE).key

    def get_api_key(self, provider: Any) -> str:
        return masked_stored(provider.stored_key)


class ProviderIn(ColumnsIn):
    slug = SlugField(default="", help_text=MADE_FROM_NAME)
    base_url = serializers.CharField(
        max_length=500, allow_blank=True, default="", help_text="Up to the version; empty: the offline model."
    )
    api_key = serializers.CharField(
        max_length=MAX_KEY, allow_blank=True, required=False, write_only=True, help_text="Empty: forget the stored one."
    )

    class Meta:
        model = Provider
        fields = columns_of(Provider)


class NewProviderIn(ProviderIn):
    vendor = serializers.ChoiceField(
        [(vendor.key, vendor.name) for vendor in PRESETS],
        required=False,
        help_text="A known one: gives name and base_url where they are left out.",
    )
    name = serializers.CharField(max_length=100, required=False, help_text="Needed without a vendor.")

    class Meta(ProviderIn.Meta):
        fields = (*ProviderIn.Meta.fields, "vendor")

    def validate(self, body: dict[str, Any]) -> dict[str, Any]:
        vendor = preset(body.pop("vendor", ""))
        if vendor is not None:
            body = body | {"name": body.get("name", vendor.name)}
            if "base_url" not in self.initial_data:
                body["base_url"] = vendor.base_url
        if "name" not in body:
            raise serializers.ValidationError({"name": "Give a name, or a vendor."}, code="required")
        return body


class LessonOut(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="To forget it by.")
    summary = serializers.CharField()
    because = serializers.CharField(help_text="The provider's words: text from outside.")
    at = serializers.CharField(help_text="When, as ISO 8601.")


class LanguageModelOut(CallsOut):
    id = serializers.UUIDField(source="public_id")
    context_window = serializers.IntegerField(help_text="Tokens.")
    provider = serializers.CharField(source="provider.slug")
    dialect = serializers.CharField(help_text=column(LanguageModel, "dialect").help_text)
    missing_since = serializers.DateTimeField(
        allow_null=True, help_text="Since when the provider's list of models is without it."
    )
    spoken = serializers.SerializerMethodField(help_text="The dialect of its calls: `chat` or `responses`.")
    spoken_because = serializers.SerializerMethodField()
    lessons = serializers.SerializerMethodField(help_text="What the provider's refusals taught.")
    tokenizer = serializers.SerializerMethodField(help_text="What its tokens are counted by: o200k, cl100k or Qwen.")
    token_factor = serializers.FloatField(help_text="Tokens of input that the provider counts for each of ours.")
    token_samples = serializers.IntegerField(help_text="Calls that the factor was learned from; 0: not known yet.")

    class Meta:
        model = LanguageModel
        fields = columns_of(
            LanguageModel,
            *KNOBS,
            *("id", "name", "provider", "context_window", "tool_limit", "max_rounds", "dialect"),
            *("missing_since", "spoken", "spoken_because", "lessons", "tokenizer", "token_factor", "token_samples"),
        )

    def get_tokenizer(self, model: LanguageModel) -> str:
        return tokenizer_of(model.name).name

    def get_spoken(self, model: LanguageModel) -> str:
        return str(resolve_model(model).dialect)

    def get_spoken_because(self, model: LanguageModel) -> str:
        return resolve_model(model).chosen_dialect.reason

    @extend_schema_field(LessonOut(many=True))
    def get_lessons(self, model: LanguageModel) -> Any:
        return LessonOut(lessons_of(model.learned), many=True).data


class ModelPart(CallsIn):
    class Meta:
        model = LanguageModel
        fields = columns_of(LanguageModel, *KNOBS)


class ModelIn(ModelPart):
    provider = serializers.CharField(max_length=63, help_text="Short name of its provider.")

    class Meta(ModelPart.Meta):
        fields = (*ModelPart.Meta.fields, "provider")


def shown_providers() -> QuerySet[Provider]:
    """Keys as they are stored: one that cannot be read must not take the list with it."""
    return Provider.objects.defer("api_key").annotate(stored_key=Cast("api_key", TextField()))


class ProviderList(APIView):
    @extend_schema(
        operation_id="providers_list", summary="Providers", parameters=PAGE_PARAMETERS, responses=paged(ProviderOut)
    )
    def get(self, request: Request) -> Response:
        """List the providers of models. Needs the right `providers`; keys are masked."""
        api_member(request, right=Right.PROVIDERS)
        return Response(page(request, shown_providers(), "slug", lambda row: ProviderOut(row).data))

    @extend_schema(
        operation_id="providers_create", summary="Add a provider", request=NewProviderIn, responses={201: ProviderOut}
    )
    def post(self, request: Request) -> Response:
        """Add a provider. A new one has no models: add them under `models`."""
        member = api_member(request, right=Right.PROVIDERS)
        with refusals():
            provider = save_provider(None, _provider_content(checked(NewProviderIn, request)), actor=member)
        return Response(ProviderOut(shown_providers().get(pk=provider.pk)).data, status.HTTP_201_CREATED)


class ProviderDetail(APIView):
    @extend_schema(operation_id="providers_read", summary="One provider", responses=ProviderOut)
    def get(self, request: Request, slug: str) -> Response:
        """Needs the right `providers`; the key is masked."""
        api_member(request, right=Right.PROVIDERS)
        return Response(ProviderOut(get_object_or_404(shown_providers(), slug=slug)).data)

    @extend_schema(
        operation_id="providers_update", summary="Change a provider", request=ProviderIn, responses=ProviderOut
    )
    def patch(self, request: Request, slug: str) -> Response:
        """Fields that are left out stay, the key too; but a stored key never goes to another host than it was entered
        for."""
        member = api_member(request, right=Right.PROVIDERS)
        provider = get_object_or_404(shown_providers(), slug=slug)
        body = {name: getattr(provider, name) for name in PROVIDER_COLUMNS} | checked_part(ProviderIn, request)
        with refusals():
            save_provider(provider, _provider_content(body), actor=member)
        return Response(ProviderOut(shown_providers().get(pk=provider.pk)).data)

    @extend_schema(operation_id="providers_delete", summary="Remove a provider", responses={204: None})
    def delete(self, request: Request, slug: str) -> Response:
        """Delete a provider with its models and its key. Refused (409 `in_use`) while agents use one of them."""
        member = api_member(request, right=Right.PROVIDERS)
        provider = get_object_or_404(shown_providers(), slug=slug)
        with refusals():
            delete_provider(provider, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _provider_content(body: dict[str, Any]) -> ProviderContent:
    return ProviderContent(**body | {"base_url": body["base_url"].strip().rstrip("/")})


class LanguageModelList(APIView):
    @extend_schema(
        operation_id="models_list", summary="Models", parameters=PAGE_PARAMETERS, responses=paged(LanguageModelOut)
    )
    def get(self, request: Request) -> Response:
        """The providers' models. Needs the right `providers`."""
        api_member(request, right=Right.PROVIDERS)
        return Response(page(request, shown_models(), "pk", lambda row: LanguageModelOut(row).data))

    @extend_schema(
        operation_id="models_create", summary="Add a model", request=ModelIn, responses={201: LanguageModelOut}
    )
    def post(self, request: Request) -> Response:
        """Under the name that goes over the wire."""
        member = api_member(request, right=Right.PROVIDERS)
        body = checked(ModelIn, request)
        provider = Provider.objects.defer("api_key").filter(slug=body.pop("provider")).first()
        if provider is None:
            raise unknown("provider", "There is no such provider.")
        with refusals():
            model = save_model(provider, None, ModelContent(**body), actor=member)
        return Response(LanguageModelOut(model).data, status.HTTP_201_CREATED)


class LanguageModelDetail(APIView):
    @extend_schema(operation_id="models_read", summary="One model", responses=LanguageModelOut)
    def get(self, request: Request, model_id: UUID) -> Response:
        """Needs the right `providers`."""
        api_member(request, right=Right.PROVIDERS)
        return Response(LanguageModelOut(get_object_or_404(shown_models(), public_id=model_id)).data)

    @extend_schema(
        operation_id="models_update", summary="Change a model", request=ModelPart, responses=LanguageModelOut
    )
    def patch(self, request: Request, model_id: UUID) -> Response:
        """Fields that are left out stay; a limit that is null is left to the provider, or to the service."""
        member = api_member(request, right=Right.PROVIDERS)
        model = get_object_or_404(shown_models(), public_id=model_id)
        content = replace(model_content(model), **checked_part(ModelPart, request))
        with refusals():
            save_model(model.provider, model, content, actor=member)
        return Response(LanguageModelOut(model).data)

    @extend_schema(operation_id="models_delete", summary="Remove a model", responses={204: None})
    def delete(self, request: Request, model_id: UUID) -> Response:
        """Refused (409 `in_use`) while agents use it."""
        member = api_member(request, right=Right.PROVIDERS)
        model = get_object_or_404(shown_models(), public_id=model_id)
        with refusals():
            delete_model(model, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class LessonDetail(APIView):
    @extend_schema(operation_id="models_forget", summary="Forget what a refusal taught", responses={204: None})
    def delete(self, request: Request, model_id: UUID, key: str) -> Response:
        """The next call of the model is made without it. Needs the right `providers`."""
        member = api_member(request, right=Right.PROVIDERS)
        model = get_object_or_404(shown_models(), public_id=model_id)
        if key not in {lesson.key for lesson in lessons_of(model.learned)}:
            raise Http404("No such lesson.")
        with refusals():
            forget_lesson(model, key, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def shown_models() -> QuerySet[LanguageModel]:
    return LanguageModel.objects.select_related("provider").defer("provider__api_key")
