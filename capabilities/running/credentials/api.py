"""REST: credentials, who is connected, and one's own accounts. Secrets go in and never come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import SlugField, checked_part, refusals
from capabilities.models import CredentialKind, CredentialScope, SecretStatus, StoredCredential, StoredSecret
from capabilities.running.credentials.queries import (
    accounts_of,
    credential_or_404,
    own_account_or_404,
    own_accounts,
    own_secret,
    shown_credentials,
    state_of,
)
from capabilities.running.credentials.writes import (
    MAX_ORIGINS,
    MAX_SCOPES,
    MAX_SECRET,
    CredentialContent,
    clear_secret,
    connect_account,
    content_of,
    create_credential,
    delete_credential,
    may_manage,
    may_see,
    remove_secret,
    set_secret,
    update_credential,
)
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

SECRET = "By name: `token`; `user` and `password` for `basic`. It is never told again."
#: Fields of the content that a body may have.
CONTENT = (
    "title",
    "parameter",
    "prefix",
    "origins",
    "resource",
    "issuer",
    "scopes",
    "client_id",
    "client_secret",
)


def manager(request: Request) -> Membership:
    member = api_member(request)
    if not may_manage(member):
        raise PermissionDenied("This needs the admin right providers, or catalogue for every category.")
    return member


def reader(request: Request) -> Membership:
    member = api_member(request)
    if not may_see(member):
        raise PermissionDenied("This needs the admin right catalogue or providers.")
    return member


class CredentialOut(serializers.Serializer[StoredCredential]):
    name = serializers.CharField()
    title = serializers.CharField()
    kind = serializers.ChoiceField(choices=CredentialKind.choices)
    scope = serializers.ChoiceField(choices=CredentialScope.choices)
    parameter = serializers.CharField()
    prefix = serializers.CharField()
    origins = serializers.ListField(child=serializers.CharField(), help_text="It is sent nowhere else.")
    resource = serializers.CharField()
    issuer = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    client_id = serializers.CharField()
    registration = serializers.CharField(help_text="`metadata_document`, `dynamic`, `manual`, or empty before one.")
    state = serializers.SerializerMethodField(
        help_text="`connected`, `refused`, `needs_more`, `missing`; `own` where each member connects an own account."
    )
    reason = serializers.SerializerMethodField(help_text="One sentence, where the secret was refused.")
    tools = serializers.IntegerField(source="tool_count", help_text="How many it signs.")
    servers = serializers.IntegerField(source="server_count")
    accounts = serializers.IntegerField(source="account_count", help_text="How many members are connected.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def get_state(self, row: StoredCredential) -> str:
        return state_of(row)

    def get_reason(self, row: StoredCredential) -> str:
        return getattr(row, "shared_reason", None) or ""


class CredentialPart(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=100)
    parameter = serializers.CharField(max_length=100, allow_blank=True, default="", help_text="Of `header`, `query`.")
    prefix = serializers.CharField(max_length=40, allow_blank=True, trim_whitespace=False, default="")
    origins = serializers.ListField(
        child=serializers.CharField(max_length=500), max_length=MAX_ORIGINS, default=list, help_text="Scheme and host."
    )
    resource = serializers.CharField(max_length=500, allow_blank=True, default="", help_text="Of `oauth`.")
    issuer = serializers.CharField(max_length=500, allow_blank=True, default="", help_text="Of `oauth`.")
    scopes = serializers.ListField(child=serializers.CharField(max_length=200), max_length=MAX_SCOPES, default=list)
    client_id = serializers.CharField(max_length=500, allow_blank=True, default="")
    client_secret = serializers.CharField(max_length=MAX_SECRET, allow_blank=True, default="", write_only=True)
    secret = serializers.DictField(
        child=serializers.CharField(max_length=MAX_SECRET), required=False, write_only=True, help_text=SECRET
    )


class CredentialIn(CredentialPart):
    name = SlugField(help_text="It stays.")
    kind = serializers.ChoiceField(choices=CredentialKind.choices, default=CredentialKind.BEARER)
    scope = serializers.ChoiceField(choices=CredentialScope.choices, default=CredentialScope.ORGANISATION)


class SecretIn(serializers.Serializer[Any]):
    values = serializers.DictField(child=serializers.CharField(max_length=MAX_SECRET), help_text=SECRET)


class CredentialAccountOut(serializers.Serializer[StoredSecret]):
    id = serializers.UUIDField(source="public_id")
    member = serializers.UUIDField(source="membership.public_id")
    email = serializers.EmailField(source="membership.user.email")
    account = serializers.CharField(help_text="As the service calls it, where it says so.")
    status = serializers.ChoiceField(choices=SecretStatus.choices)
    reason = serializers.CharField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class AccountOut(serializers.Serializer[StoredCredential]):
    name = serializers.CharField()
    title = serializers.CharField()
    kind = serializers.ChoiceField(choices=CredentialKind.choices)
    origins = serializers.ListField(child=serializers.CharField())
    status = serializers.SerializerMethodField(help_text="`missing`, `connected`, `needs_more` or `refused`.")
    reason = serializers.SerializerMethodField()
    account = serializers.SerializerMethodField(help_text="As the service calls it, where it says so.")
    last_used_at = serializers.SerializerMethodField()

    def get_status(self, row: StoredCredential) -> str:
        secret = own_secret(row)
        return secret.status if secret is not None else "missing"

    def get_reason(self, row: StoredCredential) -> str:
        secret = own_secret(row)
        return secret.reason if secret is not None else ""

    def get_account(self, row: StoredCredential) -> str:
        secret = own_secret(row)
        return secret.account if secret is not None else ""

    def get_last_used_at(self, row: StoredCredential) -> str | None:
        secret = own_secret(row)
        return secret.last_used_at.isoformat() if secret is not None and secret.last_used_at else None


def _content(body: dict[str, Any], base: CredentialContent) -> CredentialContent:
    return replace(base, **{name: body[name] for name in CONTENT if name in body})


class CredentialList(APIView):
    @extend_schema(
        operation_id="credentials_list",
        summary="Credentials",
        parameters=PAGE_PARAMETERS,
        responses=paged(CredentialOut),
    )
    def get(self, request: Request) -> Response:
        """List the credentials that sign the requests of tools. Needs the right `catalogue` or `providers`."""
        reader(request)
        return Response(page(request, shown_credentials(), "name", lambda row: CredentialOut(row).data))

    @extend_schema(
        operation_id="credentials_create",
        summary="Add a credential",
        request=CredentialIn,
        responses={201: CredentialOut},
    )
    def post(self, request: Request) -> Response:
        """Add a credential. Needs the right `providers`, or `catalogue` for every category."""
        member = manager(request)
        body = checked(CredentialIn, request)
        content = _content(body, CredentialContent(body["title"], kind=body["kind"], scope=body["scope"]))
        with refusals():
            made = create_credential(body["name"], content, actor=member, secret=body.get("secret"))
        return Response(CredentialOut(credential_or_404(made.name)).data, status=status.HTTP_201_CREATED)


class CredentialDetail(APIView):
    @extend_schema(operation_id="credentials_read", summary="One credential", responses=CredentialOut)
    def get(self, request: Request, credential: str) -> Response:
        """Return one credential. Needs the right `catalogue` or `providers`."""
        reader(request)
        return Response(CredentialOut(credential_or_404(credential)).data)

    @extend_schema(
        operation_id="credentials_update",
        summary="Change a credential",
        request=CredentialPart,
        responses=CredentialOut,
    )
    def patch(self, request: Request, credential: str) -> Response:
        """Change the given fields. With another address, give the secret again; members connect again."""
        member = manager(request)
        row = credential_or_404(credential)
        body = checked_part(CredentialPart, request)
        with refusals():
            update_credential(row, _content(body, content_of(row)), actor=member, secret=body.get("secret"))
        return Response(CredentialOut(credential_or_404(row.name)).data)

    @extend_schema(operation_id="credentials_delete", summary="Delete a credential", responses={204: None})
    def delete(self, request: Request, credential: str) -> Response:
        """Delete the credential with every secret behind it; refused while tools or servers use it."""
        member = manager(request)
        with refusals():
            delete_credential(credential_or_404(credential), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class CredentialSecret(APIView):
    @extend_schema(
        operation_id="credentials_secret_set",
        summary="Enter the organisation’s secret",
        request=SecretIn,
        responses=CredentialOut,
    )
    def put(self, request: Request, credential: str) -> Response:
        """Store a secret in place of the one before."""
        member = manager(request)
        row = credential_or_404(credential)
        with refusals():
            set_secret(row, checked(SecretIn, request)["values"], actor=member)
        return Response(CredentialOut(credential_or_404(row.name)).data)

    @extend_schema(operation_id="credentials_secret_clear", summary="Forget the secret", responses={204: None})
    def delete(self, request: Request, credential: str) -> Response:
        """Delete the secret: tools that need it are not sent from then on. A sign-in is revoked at the service, where
        it can be."""
        member = manager(request)
        clear_secret(credential_or_404(credential), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class CredentialAccounts(APIView):
    @extend_schema(
        operation_id="credentials_accounts_list",
        summary="Connected members",
        parameters=PAGE_PARAMETERS,
        responses=paged(CredentialAccountOut),
    )
    def get(self, request: Request, credential: str) -> Response:
        """List the members who connected an own account, newest first; never what is stored."""
        manager(request)
        rows = accounts_of(credential_or_404(credential))
        return Response(page(request, rows, "pk", lambda row: CredentialAccountOut(row).data, newest_first=True))


class CredentialAccount(APIView):
    @extend_schema(operation_id="credentials_accounts_delete", summary="Disconnect a member", responses={204: None})
    def delete(self, request: Request, credential: str, account_id: UUID) -> Response:
        """Remove a member's account. A sign-in is revoked at the service, where it can be."""
        member = manager(request)
        secret = accounts_of(credential_or_404(credential)).filter(public_id=account_id).first()
        if secret is None:
            raise Http404("No such account.")
        with refusals():
            remove_secret(secret, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class AccountList(APIView):
    @extend_schema(
        operation_id="accounts_list", summary="My accounts", parameters=PAGE_PARAMETERS, responses=paged(AccountOut)
    )
    def get(self, request: Request) -> Response:
        """List the services that a member can connect an own account to, each with whether one is connected."""
        member = api_member(request)
        return Response(page(request, own_accounts(member), "name", lambda row: AccountOut(row).data))


class AccountDetail(APIView):
    @extend_schema(operation_id="accounts_read", summary="One of my accounts", responses=AccountOut)
    def get(self, request: Request, credential: str) -> Response:
        """Return one account of the member's, with whether it is connected."""
        return Response(AccountOut(own_account_or_404(api_member(request), credential)).data)

    @extend_schema(
        operation_id="accounts_connect", summary="Connect my account", request=SecretIn, responses=AccountOut
    )
    def put(self, request: Request, credential: str) -> Response:
        """Connect an account by typing its secret. One that wants a sign-in is connected in the browser."""
        member = api_member(request, at_least=Access.MEMBER)
        row = own_account_or_404(member, credential)
        with refusals():
            connect_account(row, checked(SecretIn, request)["values"], actor=member)
        return Response(AccountOut(own_account_or_404(member, row.name)).data)

    @extend_schema(operation_id="accounts_disconnect", summary="Disconnect my account", responses={204: None})
    def delete(self, request: Request, credential: str) -> Response:
        """Disconnect the account. A sign-in is revoked at the service, where it can be."""
        member = api_member(request, at_least=Access.MEMBER)
        secret = own_secret(own_account_or_404(member, credential))
        if secret is not None:
            remove_secret(secret, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
