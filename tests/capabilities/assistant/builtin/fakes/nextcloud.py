"""Nextcloud Talk: https://nextcloud-talk.readthedocs.io/en/latest/chat/"""

from __future__ import annotations

from typing import Any

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, basic, json_reply

TALK = ["ocs", "v2.php", "apps", "spreed", "api"]


def ocs(data: Any, status: int = 200, message: str = "OK") -> Reply:
    meta = {"status": "ok" if status < 400 else "failure", "statuscode": status, "message": message}
    return json_reply({"ocs": {"meta": meta, "data": data}}, status)


class Nextcloud(FakeService):
    user, password = "robot", "app-password-1234"

    def __init__(self) -> None:
        super().__init__()
        self.rooms = {"x9fj2k": "Team", "abc12345": "Release", "zzz99": "Release"}
        self.messages: dict[str, list[dict[str, Any]]] = {token: [] for token in self.rooms}

    def answer(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != basic(self.user, self.password):
            return ocs([], 401, "Current user is not logged in")
        if asked.headers.get("ocs-apirequest") != "true":
            return json_reply({"message": "CSRF check failed"}, 412)
        if asked.parts[:5] != TALK:
            return ocs([], 404)
        match (asked.method, *asked.parts[5:]):
            case ("GET", "v4", "room"):
                return ocs([{"token": token, "displayName": name, "type": 2} for token, name in self.rooms.items()])
            case ("POST", "v1", "chat", token) if token in self.messages:
                return ocs(self.say(token, asked.json["message"], "robot", asked.json.get("referenceId", "")), 201)
            case ("GET", "v1", "chat", token) if token in self.messages:
                newest_first = self.messages[token][::-1][: int(asked.query["limit"])]
                return ocs(newest_first) if newest_first else Reply(304)
        return ocs([], 404)

    def say(self, token: str, text: str, who: str, reference: str = "", parameters: Any = ()) -> dict[str, Any]:
        message = {
            "id": 100 + len(self.messages[token]),
            "token": token,
            "actorType": "users",
            "actorId": who,
            "actorDisplayName": who.title(),
            "timestamp": 1_795_000_000 + len(self.messages[token]),
            "message": text,
            "messageParameters": parameters,
            "systemMessage": "",
            "messageType": "comment",
            "referenceId": reference,
        }
        self.messages[token].append(message)
        return message
