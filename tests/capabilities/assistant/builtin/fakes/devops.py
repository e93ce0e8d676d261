"""GitHub's REST API, the Docker Engine's and AWS Lambda's, each with its own errors."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from typing import Any

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, json_reply

NOT_FOUND = {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}


def issue(number: int, title: str, **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "title": title,
        "state": "open",
        "user": {"login": "octocat", "id": 1},
        "labels": [{"id": 1, "name": "bug"}],
        "updated_at": "2026-11-01T10:00:00Z",
        "html_url": f"https://github.com/acme/shop/issues/{number}",
        "comments": 0,
        "body": "It breaks.\n\nAlways.",
        **more,
    }


class GitHub(FakeService):
    token = ""
    files = {"src/a b.py": b"print('\xc3\xbc')\n", "logo.png": b"\x89PNG\0"}  # noqa: RUF012 -- never changed

    def answer(self, asked: Asked) -> Reply:
        sent = asked.headers.get("authorization", "")
        if sent and sent != f"Bearer {self.token}":
            return json_reply({"message": "Bad credentials", "status": "401"}, 401)
        if asked.headers.get("x-github-api-version") != "2022-11-28":
            return json_reply({"message": "Unknown version"}, 400)
        match asked.parts:
            case ["rate_limit"]:
                limit = {"limit": 5_000, "remaining": 4_999, "reset": 1_795_000_000, "used": 1}
                return json_reply({"resources": {"core": limit}, "rate": limit})
            case ["repos", "acme", "shop"]:
                return json_reply(self.repository())
            case ["repos", "acme", "shop", "issues"]:
                rows = [issue(3, "Crash"), issue(2, "Fix it", pull_request={"url": "x"}), issue(1, "Slow")]
                return json_reply(rows[: int(asked.query["per_page"])])
            case ["repos", "acme", "shop", "pulls"]:
                return json_reply([issue(2, "Fix it", state="closed", merged_at="2026-11-01T10:00:00Z")])
            case ["repos", "acme", "shop", "issues", "3"]:
                return json_reply(issue(3, "Crash", comments=1))
            case ["repos", "acme", "shop", "issues", "3", "comments"]:
                return json_reply([{"id": 9, "user": {"login": "bob"}, "body": "Same here."}])
            case ["repos", "acme", "shop", "contents", *path]:
                return self.contents("/".join(path))
            case ["search", ("repositories" | "issues" | "code") as kind]:
                return self.search(kind, asked)
        return json_reply(NOT_FOUND, 404)

    def repository(self) -> dict[str, Any]:
        return {
            "id": 1,
            "full_name": "acme/shop",
            "description": "A shop",
            "language": "Python",
            "html_url": "https://github.com/acme/shop",
            "stargazers_count": 5,
            "forks_count": 0,
            "open_issues_count": 2,
            "default_branch": "main",
            "license": {"key": "mit", "spdx_id": "MIT"},
            "topics": ["shop"],
            "pushed_at": "2026-11-01T10:00:00Z",
            "archived": False,
        }

    def contents(self, path: str) -> Reply:
        if path == "src":
            return json_reply([{"name": "a b.py", "path": "src/a b.py", "type": "file", "size": 12}])
        if path == "big.bin":
            return json_reply({"type": "file", "encoding": "none", "size": 2_000_000, "content": ""})
        if path not in self.files:
            return json_reply(NOT_FOUND, 404)
        text = b64encode(self.files[path]).decode()
        lines = "".join(text[start : start + 60] + "\n" for start in range(0, len(text), 60))
        return json_reply({"type": "file", "encoding": "base64", "path": path, "content": lines})

    def search(self, kind: str, asked: Asked) -> Reply:
        if kind == "code" and "authorization" not in asked.headers:
            return json_reply({"message": "Requires authentication", "status": "401"}, 401)
        if "!!" in asked.query["q"]:
            return json_reply({"message": "Validation Failed", "errors": [{"code": "invalid"}], "status": "422"}, 422)
        code = {"name": "a.py", "path": "src/a.py", "html_url": "https://x.test/a", "repository": self.repository()}
        item: dict[str, Any] = {"repositories": self.repository(), "issues": issue(3, "Crash"), "code": code}[kind]
        return json_reply({"total_count": 41, "incomplete_results": False, "items": [item]})


class Docker(FakeService):
    def __init__(self) -> None:
        super().__init__()
        self.states = {"web": "running", "job": "exited"}

    def answer(self, asked: Asked) -> Reply:
        match (asked.method, *asked.parts):
            case ("GET", "containers", "json"):
                return json_reply([self.row(name) for name in self.states])
            case (_, "containers", name, _) if name not in self.states:
                return json_reply({"message": f"No such container: {name}"}, 404)
            case ("GET", "containers", name, "json"):
                return json_reply(self.detail(name))
            case ("GET", "containers", name, "logs"):
                return self.logs(name, int(asked.query["tail"]))
            case ("POST", "containers", name, ("start" | "stop") as verb):
                state = {"start": "running", "stop": "exited"}[verb]
                same = self.states[name] == state
                self.states[name] = state
                return Reply(304 if same else 204)
        return json_reply({"message": "page not found"}, 404)

    def row(self, name: str) -> dict[str, Any]:
        return {
            "Id": hashlib.sha256(name.encode()).hexdigest(),
            "Names": [f"/{name}"],
            "Image": f"acme/{name}:1",
            "State": self.states[name],
            "Status": "Up 2 hours",
            "Ports": [],
            "Labels": {},
        }

    def detail(self, name: str) -> dict[str, Any]:
        return {
            "Id": hashlib.sha256(name.encode()).hexdigest(),
            "Name": f"/{name}",
            "RestartCount": 0,
            "State": {
                "Status": self.states[name],
                "Running": False,
                "ExitCode": 1,
                "StartedAt": "2026-11-18T08:00:00Z",
            },
            "Config": {"Image": f"acme/{name}:1", "Env": ["PASSWORD=hunter2", "PATH=/bin"], "Cmd": ["run", "--now"]},
            "NetworkSettings": {"Networks": {"bridge": {}}, "Ports": {"80/tcp": None}},
        }

    def logs(self, name: str, tail: int) -> Reply:
        lines = [b"one\n", "zwei ü\n".encode(), b"three\n"][-tail:]
        if name == "job":  # it has a terminal
            return Reply(200, b"".join(lines), {"Content-Type": "application/vnd.docker.raw-stream"})
        frames = [
            bytes([1 + index % 2, 0, 0, 0]) + len(line).to_bytes(4, "big") + line for index, line in enumerate(lines)
        ]
        return Reply(200, b"".join(frames), {"Content-Type": "application/vnd.docker.multiplexed-stream"})


class Lambda(FakeService):
    """It works every signature out for itself, from the request as it came in."""

    access_key, secret_key, region = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1"

    def answer(self, asked: Asked) -> Reply:
        if self.signature(asked) != asked.headers.get("authorization", "").rpartition("Signature=")[2]:
            message = "The request signature we calculated does not match the signature you provided."
            return json_reply({"message": message}, 403, x_amzn_ErrorType="InvalidSignatureException")
        match (asked.method, *asked.parts):
            case ("GET", "2015-03-31", "functions"):
                return json_reply({"Functions": [self.function("resize"), self.function("fail")], "NextMarker": "m"})
            case ("POST", "2015-03-31", "functions", name, "invocations"):
                return self.invoke(name.rpartition(":")[2], asked)
        return json_reply({"message": "Not Found"}, 404)

    def signature(self, asked: Asked) -> str:
        """By the book: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html"""
        proof = asked.headers.get("authorization", "")
        names = proof.partition("SignedHeaders=")[2].partition(",")[0]
        if not {"host", "x-amz-date"} <= set(names.split(";")):
            return "unsigned"
        path = asked.path.replace("%", "%25")
        headers = "".join(f"{name}:{asked.headers.get(name, '')}\n" for name in names.split(";"))
        digest = hashlib.sha256(asked.body).hexdigest()
        canonical = f"{asked.method}\n{path}\n\n{headers}\n{names}\n{digest}"
        moment = asked.headers["x-amz-date"]
        scope = f"{moment[:8]}/{self.region}/lambda/aws4_request"
        if f"Credential={self.access_key}/{scope}," not in proof:
            return "unknown"
        key = b"AWS4" + self.secret_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        return hmac.digest(key, text.encode(), "sha256").hex()

    def function(self, name: str) -> dict[str, Any]:
        return {
            "FunctionName": name,
            "FunctionArn": f"arn:aws:lambda:eu-central-1:123456789012:function:{name}",
            "Runtime": "python3.13",
            "Description": "",
            "MemorySize": 128,
            "Timeout": 3,
            "LastModified": "2026-11-01T10:00:00.000+0000",
            "Environment": {"Variables": {"PASSWORD": "hunter2"}},
        }

    def invoke(self, name: str, asked: Asked) -> Reply:
        if name == "fail":
            error = {"errorMessage": "division by zero", "errorType": "ZeroDivisionError", "stackTrace": ["..."]}
            return json_reply(error, X_Amz_Function_Error="Unhandled")
        if name != "resize":
            missing = {"Type": "User", "Message": f"Function not found: {name}"}
            return json_reply(missing, 404, x_amzn_ErrorType="ResourceNotFoundException")
        return Reply(200, json.dumps({"got": asked.json}).encode(), {"Content-Type": "application/json"})
