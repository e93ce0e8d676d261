"""Signing in at an authorization server, in two steps: a member is sent there, and comes back with a code.

The `state` that goes along belongs to one login session of ours, is kept as a digest, and is good for one return.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write
from capabilities.models import CredentialKind, CredentialScope, OAuthSignIn, StoredCredential, StoredSecret
from capabilities.running.credentials.oauth.clients import MANUAL, become_client
from capabilities.running.credentials.oauth.discovery import discover
from capabilities.running.credentials.oauth.requests import OAuthRefused, check_endpoint, host_of, person_waits
from capabilities.running.credentials.oauth.revoking import queue_unkept
from capabilities.running.credentials.oauth.tokens import Tokens, exchange_code
from capabilities.running.credentials.writes import as_it_is, may_manage, require_manager, store_secret
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

#: Time for a member to come back, time for which metadata is taken as read, and sign-ins that a member may have begun.
TO_COME_BACK, METADATA_KEPT, MOST_BEGUN = timedelta(minutes=10), timedelta(hours=24), 20
MOST_SCOPES = 100
#: Meaning for the reader of an authorization server's refusal (RFC 6749, 4.1.2.1).
MEANINGS = {
    "access_denied": "you did not agree there",
    "invalid_scope": "it does not give these permissions",
    "unauthorized_client": "it does not allow this to our client",
    "temporarily_unavailable": "it cannot do it just now",
    "server_error": "it failed",
    "login_required": "it did not sign you in",
    "consent_required": "it wants you to agree first",
}


@dataclass(frozen=True)
class OwnAddresses:
    """Addresses of ours, as the member's browser and the authorization server reach them."""

    redirect_uri: str
    document_url: str


@dataclass(frozen=True)
class Departure:
    """Next place for the member: the page of the authorization server, and its host to be shown before."""

    url: str
    host: str


def begin_sign_in(
    credential: StoredCredential,
    *,
    actor: Membership,
    login_key: str,
    addresses: OwnAddresses,
    return_to: str = "",
) -> Departure:
    """Begin a sign-in of the actor's own account, or of the organisation's one for who manages credentials.

    Reads the authorization server's metadata and becomes its client, where that is not done yet. Raises OAuthRefused,
    and PermissionDenied for the organisation's.
    """
    is_shared = credential.scope == CredentialScope.ORGANISATION
    if is_shared:
        require_manager(actor)
    if credential.kind != CredentialKind.OAUTH:
        raise OAuthRefused(f"{credential.title} is not connected by signing in.")
    with person_waits(actor.organisation_id):
        credential = known_client(credential, addresses)
        check_endpoint("The page to sign in", str(credential.server_metadata["authorization_endpoint"]))
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    scopes = wanted_scopes(credential, None if is_shared else actor)
    now = timezone.now()
    with transaction.atomic():
        OAuthSignIn.objects.filter(expires_at__lt=now - TO_COME_BACK).delete()
        open_sign_ins = OAuthSignIn.objects.filter(membership=actor, used_at=None, expires_at__gt=now)
        if open_sign_ins.count() >= MOST_BEGUN:
            raise OAuthRefused("Too many sign-ins were begun: wait ten minutes.", is_lasting=False)
        OAuthSignIn.objects.create(
            organisation_id=actor.organisation_id,
            credential=credential,
            membership=actor,
            is_for_organisation=is_shared,
            state_sha256=digest(state),
            login_sha256=digest(login_key),
            verifier=verifier,
            scopes=scopes,
            return_to=return_to[:500],
            issuer=credential.server_metadata["issuer"],
            client_id=credential.client_id,
            redirect_uri=credential.redirect_uri,
            expires_at=now + TO_COME_BACK,
        )
    return _departure(credential, state, verifier, scopes)


def _departure(credential: StoredCredential, state: str, verifier: str, scopes: list[str]) -> Departure:
    page = str(credential.server_metadata["authorization_endpoint"])
    asked = {
        "response_type": "code",
        "client_id": credential.client_id,
        "redirect_uri": credential.redirect_uri,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
    }
    if credential.resource_indicator:
        asked["resource"] = credential.resource_indicator
    if scopes:
        asked["scope"] = " ".join(scopes)
    if "offline_access" in scopes:
        asked["prompt"] = "consent"
    parts = urlsplit(page)
    query = "&".join(part for part in (parts.query, urlencode(asked)) if part)
    return Departure(urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")), host_of(page))


def challenge_of(verifier: str) -> str:
    """Return the code challenge of a verifier (RFC 7636, S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def wanted_scopes(credential: StoredCredential, member: Membership | None) -> list[str]:
    """The permissions to ask for: those that an administrator named, or else the resource; with what the account has,
    and what it lacked when it was last used. One query."""
    metadata = credential.server_metadata
    named = credential.scopes or metadata.get("resource_scopes") or []
    if "offline_access" in (metadata.get("scopes_supported") or ()):
        named = [*named, "offline_access"]
    secret = StoredSecret.objects.filter(credential=credential, membership=member).defer("values_json").first()
    more = [*secret.granted_scopes, *secret.wanted_scopes] if secret is not None else []
    return list(dict.fromkeys([*named, *more]))[:MOST_SCOPES]


# -- Our client there -------------------------------------------------------------------------------------------------


def known_client(credential: StoredCredential, addresses: OwnAddresses) -> StoredCredential:
    """The credential with the authorization server's metadata, read in the last day, and with a client of ours there.

    Raises OAuthRefused.
    """
    credential = as_it_is(credential)
    is_read = credential.discovered_at is not None and credential.discovered_at > timezone.now() - METADATA_KEPT
    if is_read and credential.client_id and credential.redirect_uri:
        _check_own_address(credential, addresses)
        return credential
    found = discover(credential.resource, credential.issuer)
    metadata = {**found.metadata, "resource_scopes": list(found.scopes)}
    fields = {
        "issuer": found.issuer,
        "server_metadata": metadata,
        "resource_indicator": found.resource_indicator,
        "discovered_at": timezone.now(),
        "redirect_uri": credential.redirect_uri or addresses.redirect_uri,
    }
    if not credential.client_id:
        scopes = " ".join(credential.scopes or found.scopes)
        client = become_client(
            metadata, document_url=addresses.document_url, redirect_uri=addresses.redirect_uri, scopes=scopes
        )
        fields |= {
            "registration": client.registration,
            "client_id": client.client_id,
            "client_secret": client.client_secret,
            "client_auth": client.client_auth,
        }
    _note_client(credential, fields)
    credential = as_it_is(credential)
    _check_own_address(credential, addresses)
    return credential


def _note_client(credential: StoredCredential, fields: Mapping[str, object]) -> None:
    """Keep what was found out, unless somebody changed the credential, or became its client, meanwhile."""
    same = StoredCredential.objects.filter(
        pk=credential.pk, resource=credential.resource, issuer=credential.issuer, client_id=credential.client_id
    )
    with transaction.atomic():
        if same.update(**fields) and "registration" in fields:
            after = {
                "registration": fields["registration"],
                "client_id": fields["client_id"],
                "issuer": fields["issuer"],
            }
            record("credential.register", credential, actor=None, after=after)


def _check_own_address(credential: StoredCredential, addresses: OwnAddresses) -> None:
    """Raise OAuthRefused unless members come back to the address that the authorization server knows: a login session
    is kept for one host."""
    if not credential.client_id or not credential.server_metadata:
        raise OAuthRefused("The credential was changed a moment ago: try again.", is_lasting=False)
    if credential.redirect_uri != addresses.redirect_uri:
        parts = urlsplit(credential.redirect_uri)
        raise OAuthRefused(
            f"Open this page at {parts.scheme}://{parts.netloc} to sign in: that is the address that "
            f"{host_of(credential.issuer)} knows of us."
        )


@configuration_write()
def forget_client(credential: StoredCredential, *, actor: Membership) -> None:
    """Read the authorization server again at the next sign-in, and register there again, unless the client was typed.

    Accounts stay connected for as long as their tokens last.
    """
    require_manager(actor)
    credential = as_it_is(credential)
    before = {"registration": credential.registration, "client_id": credential.client_id}
    credential.server_metadata, credential.discovered_at = {}, None
    credential.redirect_uri = ""
    if credential.registration != MANUAL:
        credential.registration = credential.client_id = credential.client_secret = credential.client_auth = ""
    credential.save()
    record("credential.forget_client", credential, actor=actor, before=before)


# -- Coming back ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Answer with which the authorization server sent the member back."""

    code: str = ""
    iss: str = ""
    error: str = ""


def sign_in_of_state(state: str) -> OAuthSignIn | None:
    """The sign-in that was begun with this state, of whatever organisation, with its credential. One query."""
    with system_scope():
        rows = OAuthSignIn.objects.select_related("organisation", "credential__organisation", "membership__user")
        return rows.defer("credential__client_secret").filter(state_sha256=digest(state)).first()


def used_sign_in(found: OAuthSignIn, *, login_key: str) -> OAuthSignIn:
    """The sign-in, which nobody can come back from again. Raises OAuthRefused for another login session's, one that
    was used, and one that took too long. One query."""
    now = timezone.now()
    if not secrets.compare_digest(found.login_sha256, digest(login_key)):
        raise OAuthRefused("This sign-in was begun in another browser or login: begin again.")
    rows = OAuthSignIn.objects.filter(pk=found.pk, used_at=None, expires_at__gt=now)
    if not rows.update(used_at=now):
        raise OAuthRefused("This sign-in was used already, or took more than ten minutes: begin again.")
    return found


def end_sign_in(sign_in: OAuthSignIn, answer: Answer, *, actor: Membership) -> StoredSecret:
    """Exchange the code for tokens, and keep them as the actor's own, or the organisation's. Raises OAuthRefused, and
    PermissionDenied for who may not manage the organisation's any more."""
    credential = as_it_is(sign_in.credential)
    if sign_in.membership_id != actor.pk:
        raise OAuthRefused("This sign-in was begun by somebody else.")
    if sign_in.is_for_organisation and not may_manage(actor):
        raise PermissionDenied("This needs the admin right providers, or catalogue for every category.")
    _check_same_client(credential, sign_in)
    _check_issuer(credential.server_metadata, answer.iss)
    host = host_of(sign_in.issuer)
    if answer.error:
        raise OAuthRefused(f"{host} did not sign you in: {MEANINGS.get(answer.error, 'it gave no reason we know')}.")
    if not answer.code:
        raise OAuthRefused(f"{host} sent you back without a code.")
    with person_waits(actor.organisation_id):
        tokens = exchange_code(credential, answer.code, verifier=sign_in.verifier, redirect_uri=sign_in.redirect_uri)
    try:
        return keep_tokens(credential, tokens, sign_in, actor=actor)
    except Exception as error:
        queue_unkept(credential, tokens.values, actor)
        if isinstance(error, StoredCredential.DoesNotExist):
            raise OAuthRefused("The credential was deleted meanwhile: nothing was kept.") from error
        raise


def _check_same_client(credential: StoredCredential, sign_in: OAuthSignIn) -> None:
    began = (sign_in.issuer, sign_in.client_id, sign_in.redirect_uri)
    if began != (credential.server_metadata.get("issuer"), credential.client_id, credential.redirect_uri):
        raise OAuthRefused("The credential was changed meanwhile: begin again.")


def _check_issuer(metadata: Mapping[str, object], iss: str) -> None:
    """Check that the answer comes from the authorization server that was asked (RFC 9207)."""
    if iss and iss != metadata.get("issuer"):
        raise OAuthRefused("The answer came from another authorization server than was asked: nothing was kept.")
    if not iss and metadata.get("authorization_response_iss_parameter_supported") is True:
        raise OAuthRefused("The answer does not say which authorization server it is from: nothing was kept.")


@configuration_write()
def keep_tokens(
    credential: StoredCredential, tokens: Tokens, sign_in: OAuthSignIn, *, actor: Membership
) -> StoredSecret:
    """Store what a sign-in brought. Raises OAuthRefused where the credential was changed while it was under way."""
    credential = as_it_is(credential)
    _check_same_client(credential, sign_in)
    owner = None if sign_in.is_for_organisation else actor
    secret = store_secret(
        credential,
        owner,
        tokens.values,
        granted_scopes=list(tokens.scopes or sign_in.scopes),
        expires_at=tokens.expires_at,
        account=tokens.account,
    )
    touch_registry(credential.organisation_id)
    action = "credential.secret" if owner is None else "account.connect"
    record(action, credential, actor=actor, after={"by": "signed in", "account": tokens.account})
    return secret
