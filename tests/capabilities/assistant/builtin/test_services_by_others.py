"""Tools against servers that other people wrote: httpbin for the web, aiosmtpd for mail, moto for AWS.

They run on loopback, in threads.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import ssl
import threading
import zipfile
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import boto3  # type: ignore[import-untyped]
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from aiosmtpd.smtp import AuthResult
from httpbin import app as httpbin  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

from capabilities.contract.context import ToolContext
from tests.capabilities.assistant.builtin.conftest import Call
from tests.capabilities.assistant.builtin.fakes.smtp import make_certificate
from tests.capabilities.assistant.builtin.remote import call_with, refused


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The address of an httpbin."""
    with make_server("127.0.0.1", 0, httpbin, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Inbox(Message):
    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Any] = []
        #: Of each login, whether it was right.
        self.logins: list[bool] = []

    def handle_message(self, message: Any) -> None:
        self.mails.append(message_from_bytes(message.as_bytes(), policy=policy.default))

    def check_login(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        self.logins.append((data.login.decode(), data.password.decode()) == (ACCOUNT["user"], ACCOUNT["password"]))
        return AuthResult(success=self.logins[-1], handled=False)


@pytest.fixture
def mail() -> Iterator[tuple[int, Inbox]]:
    """The port of a mail server, and what it took."""
    inbox = Inbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    yield port, inbox
    controller.stop()


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]


def test_http_fetch_sends_its_headers_and_reads_json(call: Call, web: str) -> None:
    answer = call("http_fetch", url=f"{web}/get?a=1", headers={"X-Word": "tea"})

    seen = json.loads(answer["body"])
    assert (answer["status"], seen["args"], seen["headers"]["X-Word"]) == (200, {"a": "1"}, "tea")


@pytest.mark.parametrize("path", ["gzip", "deflate"])
def test_http_fetch_reads_compressed_bodies(call: Call, web: str, path: str) -> None:
    body = json.loads(call("http_fetch", url=f"{web}/{path}")["body"])

    assert body["gzipped" if path == "gzip" else "deflated"] is True


def test_http_fetch_tells_statuses_and_follows_redirects(call: Call, web: str) -> None:
    assert call("http_fetch", url=f"{web}/status/418")["status"] == 418
    assert call("http_fetch", url=f"{web}/redirect/2")["url"] == f"{web}/get"


def test_http_post_sends_json_and_its_headers(call: Call, web: str) -> None:
    answer = call("http_post", url=f"{web}/post", body={"tea": "Grüße", "cups": [1, 2]}, headers={"X-Word": "tea"})

    seen = json.loads(answer["body"])
    assert (answer["status"], seen["json"]) == (200, {"tea": "Grüße", "cups": [1, 2]})
    assert (seen["headers"]["Content-Type"], seen["headers"]["X-Word"]) == ("application/json", "tea")


def test_http_post_sends_text_as_it_is(call: Call, web: str) -> None:
    answer = call("http_post", url=f"{web}/post", body="one & two", headers={"Content-Type": "text/plain"})

    seen = json.loads(answer["body"])
    assert (seen["data"], seen["headers"]["Content-Type"]) == ("one & two", "text/plain")


def test_http_post_is_told_a_refusal_and_posts_to_no_page_that_only_reads(call: Call, web: str) -> None:
    assert call("http_post", url=f"{web}/status/503", body={})["status"] == 503
    assert call("http_post", url=f"{web}/get", body={})["status"] == 405


def test_web_read_reads_the_text_of_a_page(call: Call, web: str) -> None:
    assert "Herman Melville - Moby-Dick" in call("web_read", url=f"{web}/html")["text"]


def test_email_send_is_taken_by_a_mail_server(context: ToolContext, mail: tuple[int, Inbox]) -> None:
    port, inbox = mail
    values = {"host": "127.0.0.1", "port": str(port), "security": "none", "from": "hub@example.org"}

    call_with(
        context,
        "email_send",
        values,
        {"to": ["ann@example.org", "ben@example.org"], "subject": "Grüße", "body": "Tea at four?\n.\nBye €"},
    )

    (letter,) = inbox.mails
    assert (letter["subject"], letter["from"]) == ("Grüße", "hub@example.org")
    assert letter["x-rcptto"] == "ann@example.org, ben@example.org"
    assert letter.get_content().replace("\r\n", "\n").strip() == "Tea at four?\n.\nBye €"


# -- Mail with a login ------------------------------------------------------------------------------------------------

ACCOUNT = {"user": "hub", "password": "a password: with spaces"}
LETTER = {"to": ["ann@example.org"], "subject": "Tea", "body": "At four?"}


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a mail server at 127.0.0.1; this process trusts it."""
    made = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    return made


@pytest.fixture(params=["starttls", "tls"])
def locked(request: pytest.FixtureRequest, certificate: Path) -> Iterator[tuple[dict[str, str], Inbox]]:
    """The set-up of a mail server that wants TLS and a login, and what it took."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    inbox = Inbox()
    options: dict[str, Any] = {"authenticator": inbox.check_login}
    if request.param == "starttls":
        options |= {"tls_context": context, "require_starttls": True, "auth_required": True}
    else:
        options |= {"ssl_context": context, "auth_require_tls": False}  # aiosmtpd counts STARTTLS alone as TLS
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    yield {"host": "127.0.0.1", "port": str(port), "security": request.param, "from": "hub@example.org"}, inbox
    controller.stop()


def test_email_send_signs_in_over_tls(context: ToolContext, locked: tuple[dict[str, str], Inbox]) -> None:
    values, inbox = locked

    assert call_with(context, "email_send", values | ACCOUNT, LETTER) == {"sent_to": ["ann@example.org"]}

    (letter,) = inbox.mails
    assert (letter["subject"], letter["x-rcptto"], inbox.logins) == ("Tea", "ann@example.org", [True])


def test_email_send_says_that_a_login_was_refused(context: ToolContext, locked: tuple[dict[str, str], Inbox]) -> None:
    values, inbox = locked

    told = refused(context, "email_send", values | ACCOUNT | {"password": "wrong"}, LETTER)

    assert "user or password" in told
    assert "wrong" not in told
    assert (inbox.mails, set(inbox.logins)) == ([], {False})


@pytest.mark.parametrize("field", list(ACCOUNT))
def test_email_send_says_that_a_login_is_not_ascii(
    context: ToolContext, locked: tuple[dict[str, str], Inbox], field: str
) -> None:
    values, inbox = locked

    told = refused(context, "email_send", values | ACCOUNT | {field: "pässword"}, LETTER)

    assert "only ASCII" in told
    assert "pässword" not in told
    assert (inbox.mails, inbox.logins) == ([], [])


@pytest.fixture
def aws() -> Iterator[dict[str, str]]:
    """The set-up of a cloud with one function."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    values = {"region": "eu-central-1", "access_key": "AKIATEST", "secret_key": "s3cret"}
    values["endpoint_url"] = f"http://{host}:{port}"
    make_function(values, "brew")
    yield values
    server.stop()


def make_function(values: dict[str, str], name: str) -> None:
    """By Amazon's own library."""
    account: dict[str, Any] = {
        "region_name": values["region"],
        "endpoint_url": values["endpoint_url"],
        "aws_access_key_id": values["access_key"],
        "aws_secret_access_key": values["secret_key"],
    }
    role = boto3.client("iam", **account).create_role(RoleName="brewer", AssumeRolePolicyDocument="{}")
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("brew.py", "def handler(event, context): return 1")
    boto3.client("lambda", **account).create_function(
        FunctionName=name,
        Runtime="python3.12",
        Role=role["Role"]["Arn"],
        Handler="brew.handler",
        Code={"ZipFile": code.getvalue()},
    )


def test_aws_lambda_lists_the_functions_of_a_cloud(context: ToolContext, aws: dict[str, str]) -> None:
    (function,) = call_with(context, "aws_lambda", aws, {"action": "list"})["functions"]

    assert (function["name"], function["runtime"]) == ("brew", "python3.12")
    assert "no function tea" in refused(context, "aws_lambda", aws, {"action": "invoke", "function": "tea"})
