"""A client of the REST API, for tests: JSON in, JSON out, with a member's token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync
from django.http import StreamingHttpResponse
from django.test import Client

from tests.cast import make_token
from toolhub.tenants.models import Membership

API = "/api/v1/"


@dataclass(frozen=True)
class Reply:
    status: int
    json: Any
    headers: dict[str, str]
    text: str = ""

    @property
    def error(self) -> tuple[int, str, str | None]:
        """(status, code, field) of a refusal, whose shape is checked on the way."""
        assert set(self.json) == {"error"}, self.text
        assert set(self.json["error"]) == {"code", "message", "field"}
        assert self.json["error"]["message"]
        return self.status, self.json["error"]["code"], self.json["error"]["field"]


class Rest:
    """Asks as one member. A fault of the server is an answer (500), as it is for a real client."""

    def __init__(self, member: Membership | None) -> None:
        self.headers = {"Authorization": f"Bearer {make_token(member)}"} if member else {}
        self.client = Client(raise_request_exception=False, headers=self.headers)

    def get(self, path: str, headers: Any = None, **query: Any) -> Reply:
        return self.ask("GET", path, headers=headers, query=query)

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("POST", path, b"" if body is None else json.dumps(body).encode(), headers=headers)

    def patch(self, path: str, body: Any) -> Reply:
        return self.ask("PATCH", path, json.dumps(body).encode())

    def put(self, path: str, body: Any) -> Reply:
        return self.ask("PUT", path, json.dumps(body).encode())

    def delete(self, path: str) -> Reply:
        return self.ask("DELETE", path)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Reply:
        url = path if path.startswith("/") else API + path
        response = self.client.generic(
            method, url, body, content_type=content_type, headers=headers or {}, query_params=query or {}
        )
        if isinstance(response, StreamingHttpResponse):
            text = async_to_sync(_streamed)(response)
        else:
            text = response.content.decode()
        is_json = response.headers.get("Content-Type", "").startswith("application/json") and text
        return Reply(response.status_code, json.loads(text) if is_json else None, dict(response.headers), text)


async def _streamed(response: StreamingHttpResponse) -> str:
    return b"".join([part async for part in response]).decode()
