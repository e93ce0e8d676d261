"""An authorization server and a protected resource for tests: one real HTTP server that speaks OAuth 2.1.

It agrees to every sign-in at once, unless `consent` says otherwise; `requests` holds what came. What its metadata says,
and how it misbehaves, is set by attributes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from urllib.request import urlopen

Json = dict[str, Any]


@dataclass
class Asked:
    """One request that came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str]
    json: Any = None


@dataclass
class Grant:
    """One sign-in: whose, for which client and resource, with which permissions."""

    client_id: str
    resource: str
    scope: str
    challenge: str = ""
    redirect_uri: str = ""
    refresh_token: str = ""
    is_over: bool = False


@dataclass
class AuthorizationServer:
    """`with AuthorizationServer() as server:` it listens on loopback; `resource` is the address of what it protects."""

    #: Added to its metadata, or put in place of what it says; None takes a key out.
    metadata: Json = field(default_factory=dict)
    #: Added to what the protected resource says of itself.
    resource_metadata: Json = field(default_factory=dict)
    #: agree: back at once with a code; ask: a page with a button; deny: back with access_denied.
    consent: str = "agree"
    #: What stands in `iss` on the way back; None for what is right, "" for nothing.
    iss: str | None = None
    #: Seconds that a token lives, and that a refresh takes.
    life: float = 3600
    delay: float = 0
    #: Permissions that /files wants beside those of the sign-in.
    files_scope: str = "files"
    #: One permission that it gives to nobody, whatever they ask for.
    withheld: str = ""
    #: The claim `aud` of tokens; empty for tokens that say nothing.
    audience: str = ""
    rotates: bool = True
    #: Whether it says the refresh token again where that stays. RFC 6749, section 6, lets it leave it out.
    repeats: bool = True
    #: What it answers to a revocation.
    revoke_status: int = 200
    requests: list[Asked] = field(default_factory=list)
    #: By id; a secret or "".
    clients: dict[str, str] = field(default_factory=dict)
    codes: dict[str, Grant] = field(default_factory=dict)
    tokens: dict[str, Grant] = field(default_factory=dict)
    refresh_tokens: dict[str, Grant] = field(default_factory=dict)
    #: Refresh tokens that were exchanged: used again, they end the sign-in.
    spent: dict[str, Grant] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def __enter__(self) -> AuthorizationServer:
        handler = type("Handler", (_Handler,), {"server_state": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.resource = f"{self.url}/mcp"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def asked(self, path: str) -> list[Asked]:
        return [each for each in self.requests if each.path == path]

    def refreshes(self) -> int:
        return sum(each.form.get("grant_type") == "refresh_token" for each in self.asked("/token"))

    def described(self) -> Json:
        body: Json = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        } | self.metadata
        return {name: value for name, value in body.items() if value is not None}

    def end_everything(self) -> None:
        """All sign-ins are revoked at the server."""
        for grant in [*self.tokens.values(), *self.refresh_tokens.values()]:
            grant.is_over = True

    # -- What it answers ----------------------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON, or text for a page) and headers."""
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            body = {"resource": self.resource, "authorization_servers": [self.url]} | self.resource_metadata
            return 200, body, {}
        if asked.path == "/.well-known/oauth-authorization-server":
            return 200, self.described(), {}
        if asked.path == "/register" and asked.method == "POST":
            client_id = f"client-{secrets.token_hex(4)}"
            self.clients[client_id] = ""
            return 201, {**asked.json, "client_id": client_id}, {}
        if asked.path == "/authorize":
            return self.authorize(asked)
        if asked.path == "/token" and asked.method == "POST":
            return self.token(asked)
        if asked.path == "/revoke" and asked.method == "POST":
            return self.revoke(asked)
        if asked.path == "/favicon.ico":
            return 200, "", {}
        if asked.path in ("/mcp", "/files"):
            return self.protected(asked)
        return 404, {}, {}

    def authorize(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        given = {**asked.query, **asked.form}
        if not self.knows(given.get("client_id", ""), given.get("redirect_uri", "")):
            return 400, {"error": "invalid_client"}, {}
        if given.get("code_challenge_method") != "S256" or given.get("response_type") != "code":
            return 400, {"error": "invalid_request"}, {}
        if self.consent == "ask" and asked.method == "GET":
            hidden = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in given.items())
            page = (
                f'<h1>Let toolhub in?</h1><form method="post" action="/authorize">{hidden}<button>Agree</button></form>'
            )
            return 200, page, {}
        back = {"state": given.get("state", "")}
        if self.consent == "deny":
            back["error"] = "access_denied"
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = Grant(
                given["client_id"],
                given.get("resource", ""),
                " ".join(scope for scope in given.get("scope", "").split() if scope != self.withheld),
                given.get("code_challenge", ""),
                given["redirect_uri"],
            )
            back["code"] = code
        iss = self.url if self.iss is None else self.iss
        if iss:
            back["iss"] = iss
        return 302, "", {"Location": f"{given['redirect_uri']}?{urlencode(back)}"}

    def knows(self, client_id: str, redirect_uri: str) -> bool:
        """A client that registered, or whose document says the same id and that address."""
        if client_id in self.clients:
            return True
        if not client_id.startswith("http"):
            return False
        with urlopen(client_id, timeout=5) as answer:
            document = json.load(answer)
        return bool(document["client_id"] == client_id and redirect_uri in document["redirect_uris"])

    def token(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        form = dict(asked.form)
        if not self.is_client(asked, form):
            return 401, {"error": "invalid_client"}, {}
        if form.get("grant_type") == "authorization_code":
            grant = self.codes.pop(form.get("code", ""), None)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
            if (
                grant is None
                or grant.challenge != challenge.decode().rstrip("=")
                or grant.redirect_uri != form.get("redirect_uri")
                or grant.client_id != form["client_id"]
            ):
                return 400, {"error": "invalid_grant"}, {}
            return 200, self.issue(grant), {}
        with self.lock:
            old = form.get("refresh_token", "")
            if old in self.spent:
                self.spent[old].is_over = True
            grant = self.refresh_tokens.get(old)
            if grant is None or grant.is_over or grant.client_id != form["client_id"]:
                return 400, {"error": "invalid_grant"}, {}
            if self.rotates:
                self.spent[old] = self.refresh_tokens.pop(old)
        time.sleep(self.delay)
        return 200, self.issue(grant), {}

    def is_client(self, asked: Asked, form: dict[str, str]) -> bool:
        basic = asked.headers.get("authorization", "").removeprefix("Basic ")
        if basic:
            name, _, secret = base64.b64decode(basic).decode().partition(":")
            form["client_id"], form["client_secret"] = unquote(name), unquote(secret)
        client_id = form.get("client_id", "")
        return client_id.startswith("http") or self.clients.get(client_id) == form.get("client_secret", "")

    def issue(self, grant: Grant) -> Json:
        access, refresh = f"at-{secrets.token_urlsafe(12)}", f"rt-{secrets.token_urlsafe(12)}"
        if self.audience:
            access = f"{access}.{_part({'aud': self.audience})}.x"
        was_said = not self.rotates and bool(grant.refresh_token)
        if was_said:
            refresh = grant.refresh_token
        grant.refresh_token = refresh
        with self.lock:
            self.tokens[access] = self.refresh_tokens[refresh] = grant
        id_token = f"x.{_part({'email': 'someone@far.example'})}.x"
        body: Json = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "id_token": id_token}
        if was_said and not self.repeats:
            del body["refresh_token"]
        return {**body, "expires_in": self.life, "scope": grant.scope}

    def revoke(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        if not self.is_client(asked, dict(asked.form)):
            return 401, {"error": "invalid_client"}, {}
        if self.revoke_status != 200:
            return self.revoke_status, {}, {}
        token = asked.form.get("token", "")
        self.revoked.append(token)
        grant = self.refresh_tokens.get(token) or self.tokens.get(token)
        if grant is not None:
            grant.is_over = True
        return 200, {}, {}

    def protected(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        grant = self.tokens.get(asked.headers.get("authorization", "").removeprefix("Bearer "))
        about = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
        if grant is None or grant.is_over:
            error = ', error="invalid_token"' if "authorization" in asked.headers else ""
            return 401, {}, {"WWW-Authenticate": f"Bearer {about}{error}"}
        if asked.path == "/files" and self.files_scope not in grant.scope.split():
            wanted = f'error="insufficient_scope", scope="{self.files_scope}", {about}'
            return 403, {}, {"WWW-Authenticate": f"Bearer {wanted}"}
        return 200, {"path": asked.path, "scope": grant.scope, "resource": grant.resource}, {}


def _part(claims: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


class _Handler(BaseHTTPRequestHandler):
    server_state: AuthorizationServer

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        is_json = "json" in self.headers.get("Content-Type", "")
        asked = Asked(
            self.command,
            parts.path,
            {name: values[-1] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in self.headers.items()},
            {} if is_json else {name: values[-1] for name, values in parse_qs(text).items()},
            json.loads(text) if is_json and text else None,
        )
        self.server_state.requests.append(asked)
        status, body, headers = self.server_state.answer(asked)
        is_page = isinstance(body, str)
        content = body.encode() if is_page else json.dumps(body).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_page else "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = _handle

    def log_message(self, *_: Any) -> None:
        pass
