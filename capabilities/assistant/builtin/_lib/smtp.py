"""One mail over SMTP, by Django's mail, to an address that was checked. Knows no tool and no service by name."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from capabilities.contract.context import ToolError
from capabilities.running.egress import EgressError, resolve_checked

#: Ports of mail servers; others only where the operator opened them.
PORTS = frozenset({25, 465, 587, 2525})
STARTTLS, TLS, NONE = "starttls", "tls", "none"


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    user: str
    password: str
    security: str


class MaybeSent(ToolError):
    """The server took the mail or not: the line broke off in between."""


def send(server: MailServer, message: EmailMessage, seconds: float) -> list[str]:
    """Hand the mail over; answers the recipients that the server refused. Raises ToolError where it took none."""
    with _signed_in(server, seconds) as (backend, line):
        message.connection = backend
        message.send()
    return sorted(line.refused)


def sign_in(server: MailServer, seconds: float) -> None:
    """Connect as for a mail, and send none. Raises ToolError where the server does not take it."""
    with _signed_in(server, seconds):
        pass


@contextmanager
def _signed_in(server: MailServer, seconds: float) -> Iterator[tuple[Backend, MailConnection]]:
    """Yield a backend that is signed in to the mail server, and its connection. Raises ToolError."""
    if not (server.user + server.password).isascii():  # smtplib sends no other
        raise ToolError("The mail server's user and password may have only ASCII characters.")
    until = time.monotonic() + seconds
    try:
        addresses = resolve_checked(server.host, server.port, timeout=seconds, ports=PORTS)
    except EgressError as error:
        raise ToolError(f"The mail server: {error}") from error
    line = MailConnection(addresses, until)
    backend = Backend(server, line)
    with _explained(server, line), line.cut_at_the_end():
        try:
            backend.open()
            yield backend, line
        finally:
            with suppress(OSError, smtplib.SMTPException):
                backend.close()


class MailConnection:
    """The connection of one mail: where it may go, when it ends, and what became of it."""

    def __init__(self, addresses: Sequence[str], until: float) -> None:
        self.addresses = addresses
        self.until = until
        self.socket: socket.socket | None = None
        self.refused: dict[str, Any] = {}
        #: From the moment on at which the server may take the mail.
        self.is_in_doubt = False

    def connect(self, port: int) -> socket.socket:
        """Connect to the first of the checked addresses that takes the connection. Raises OSError of the last one where
        none does."""
        failure = OSError("no address")
        for address in self.addresses:
            try:
                self.socket = socket.create_connection((address, port), max(0.01, self.until - time.monotonic()))
                return self.socket
            except OSError as error:
                failure = error
        raise failure

    @contextmanager
    def cut_at_the_end(self) -> Iterator[None]:
        """A server that sends a byte now and then outlasts any timeout of a single read."""
        timer = threading.Timer(max(0.0, self.until - time.monotonic()), self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _cut(self) -> None:
        if self.socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Backend(EmailBackend):
    """Django's own, on our line."""

    def __init__(self, server: MailServer, line: MailConnection) -> None:
        super().__init__(
            host=server.host,
            port=server.port,
            username=server.user,
            password=server.password,
            use_tls=server.security == STARTTLS,
            use_ssl=server.security == TLS,
            fail_silently=False,
            timeout=max(0.01, line.until - time.monotonic()),
        )
        self.line = line

    @property
    def connection_class(self) -> Any:
        base = smtplib.SMTP_SSL if self.use_ssl else smtplib.SMTP
        return lambda *arguments, **options: _on(self.line, base)(*arguments, **options)


def _on(line: MailConnection, base: type[smtplib.SMTP]) -> type[smtplib.SMTP]:
    """Return a class of SMTP connections that go to the checked addresses of `line`."""

    class Connection(base):  # type: ignore[misc, valid-type]
        """Goes to a checked address. The name is what the certificate must be for."""

        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            plain = line.connect(port)
            if base is smtplib.SMTP_SSL:
                line.socket = self.context.wrap_socket(plain, server_hostname=self._host)
            assert line.socket is not None
            return line.socket

        def starttls(self, *arguments: Any, **options: Any) -> Any:
            answer = super().starttls(*arguments, **options)
            line.socket = self.sock
            return answer

        def sendmail(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            line.refused = super().sendmail(*arguments, **options)
            return line.refused

        def data(self, message: Any) -> Any:
            line.is_in_doubt = True
            answer = super().data(message)
            line.is_in_doubt = False
            return answer

    return Connection


@contextmanager
def _explained(server: MailServer, line: MailConnection) -> Iterator[None]:
    """Exceptions as sentences. What the server says about a recipient helps; the rest of its words is left out."""
    try:
        yield
    except smtplib.SMTPRecipientsRefused as error:
        raise ToolError(f"The mail server refuses all recipients: {', '.join(sorted(error.recipients))}.") from error
    except smtplib.SMTPSenderRefused as error:
        raise ToolError("The mail server refuses the sender that was set up.") from error
    except smtplib.SMTPAuthenticationError as error:
        raise ToolError("The mail server refuses the user or password that was set up.") from error
    except smtplib.SMTPNotSupportedError as error:
        raise ToolError(
            f"The mail server at {server.host} does not offer what was set up: {server.security}."
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise ToolError(f"The certificate of the mail server is not one for {server.host}.") from error
    except (smtplib.SMTPException, OSError) as error:
        if line.is_in_doubt:
            raise MaybeSent("The mail server did not say if it took the mail: it may have been sent.") from error
        code = f" (status {error.smtp_code})" if isinstance(error, smtplib.SMTPResponseException) else ""
        raise ToolError(f"The mail was not sent: {server.host} did not work as a mail server{code}.") from error
