"""A federation whose actor, rewarder and one party serve HTTP, and plain calls of it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployment import PATIENCE, Deployment
from hiddenarm.service.kit import read_kit_file


@dataclass(frozen=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def url_of(kits: Path, role: str) -> str:
    return f"http://{read_kit_file(kits / role).http}"


def token_of(kits: Path, role: str) -> str:
    return (kits / role / "http.token").read_text().strip()


class Http:
    """Calls the roles of a deployment by HTTP."""

    def __init__(self, deployment: Deployment) -> None:
        self.kits = deployment.kits

    def post(self, role: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Make a request once."""
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {token_of(self.kits, role)}", **headers}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._call(urllib.request.Request(url_of(self.kits, role) + path, data, sent, method="POST"))

    def get(self, role: str, path: str) -> Answer:
        return self._call(urllib.request.Request(url_of(self.kits, role) + path))

    def insist(self, role: str, path: str, body: Any = None) -> Answer:
        """Make a request as an application would: again, when that is the answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self.post(role, path, body)
            except OSError:  # it does not listen yet, or any more
                answer = None
            if answer is not None and answer.status not in (503, 504):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def rank(self, event: str, key: str = "user 17", **more: Any) -> dict[str, Any]:
        answer = self.insist("actor", "/rank", {"eventId": event, "key": key, **more})
        assert answer.status == 200, answer
        return answer.body

    def reward(self, event: str, value: float, **more: Any) -> Answer:
        return self.insist("rewarder", f"/events/{event}/reward", {"value": value, **more})

    def _call(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return Answer(answer.status, json.loads(answer.read()), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read()), dict(error.headers))
