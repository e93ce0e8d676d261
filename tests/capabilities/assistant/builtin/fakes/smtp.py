"""A mail server (RFC 5321) with AUTH PLAIN and LOGIN, STARTTLS and implicit TLS, as far as a sender can tell."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import socketserver
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Mail:
    sender: str
    recipients: list[str] = field(default_factory=list)
    data: bytes = b""

    @property
    def message(self) -> Message:
        return message_from_bytes(self.data, policy=default)


class MailServer:
    """`refused` recipients are turned away; `silent` stops answering after the mail's last line, `dripping` at once."""

    user, password = "robot", "mail-password"

    def __init__(self, certificate: Path | None = None, *, implicit: bool = False) -> None:
        self.mails: list[Mail] = []
        self.lines: list[bytes] = []
        self.refused: set[str] = set()
        self.wants_login = False
        self.silent = False
        self.dripping = False
        self.implicit = implicit
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
        self.over = threading.Event()
        self.server = Server(("127.0.0.1", 0), self._handler())
        self.port = int(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # the client hung up
                    Dialogue(outer, self.request).run()

        return Handler


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Dialogue:
    def __init__(self, server: MailServer, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.mail: Mail | None = None
        self.logged_in = not server.wants_login
        self.encrypted = False
        if server.implicit:
            self.encrypt()

    def encrypt(self) -> None:
        assert self.server.context is not None
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.encrypted = True

    def run(self) -> None:
        if self.server.dripping:
            while not self.server.over.wait(0.05):
                self.connection.sendall(b"2")
        self.say(b"220 mail.test ESMTP")
        self.file = self.connection.makefile("rb")
        try:
            while (line := self.file.readline()) and self.obey(line.strip()):
                pass
        finally:
            self.file.close()
            self.connection.close()

    def say(self, line: bytes) -> None:
        self.connection.sendall(line + b"\r\n")

    def obey(self, line: bytes) -> bool:
        self.server.lines.append(line)
        verb, _, rest = line.partition(b" ")
        match verb.upper():
            case b"EHLO":
                tls = [b"250-STARTTLS"] if self.server.context and not self.encrypted else []
                self.say(b"\r\n".join([b"250-mail.test", *tls, b"250-8BITMIME", b"250 AUTH PLAIN LOGIN"]))
            case b"STARTTLS":
                self.say(b"220 go ahead")
                self.encrypt()
                self.file.close()
                self.file = self.connection.makefile("rb")
            case b"AUTH":
                plain = f"\0{self.server.user}\0{self.server.password}".encode()
                self.logged_in = rest.upper().startswith(b"PLAIN ") and base64.b64decode(rest[6:]) == plain
                self.say(b"235 welcome" if self.logged_in else b"535 5.7.8 bad credentials")
            case b"MAIL":
                self.mail = Mail(address_in(rest)) if self.logged_in else None
                self.say(b"250 ok" if self.mail else b"530 5.7.0 log in first")
            case b"RCPT":
                self.receive(address_in(rest))
            case b"DATA":
                self.take()
            case b"QUIT":
                self.say(b"221 bye")
                return False
            case _:
                self.say(b"250 ok")
        return True

    def receive(self, recipient: str) -> None:
        if self.mail is None or recipient in self.server.refused:
            self.say(b"550 no such user")
        else:
            self.mail.recipients.append(recipient)
            self.say(b"250 ok")

    def take(self) -> None:
        assert self.mail is not None
        self.say(b"354 go on")
        while (line := self.file.readline()) not in (b".\r\n", b""):
            self.mail.data += line[1:] if line.startswith(b"..") else line
        self.server.mails.append(self.mail)
        if self.server.silent:
            self.server.over.wait(5)
        else:
            self.say(b"250 taken")


def address_in(text: bytes) -> str:
    return text.decode().partition("<")[2].partition(">")[0]


def make_certificate(folder: Path, name: str = "127.0.0.1") -> Path:
    """A key and a certificate that signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
