"""`hiddenarm serve KIT`: one role as a process.

A party and the dealer serve until the federation ends. The actor and the rewarder read requests from standard input, a
line of JSON each, and answer on standard output:

    actor      {"key": "user 17", "after": 3}            ->  {"id": "3f9c02d17ab4-000017", "arm": 4}
    rewarder   {"id": "3f9c02d17ab4-000017", "reward": 1}  ->  {"id": "3f9c02d17ab4-000017", "version": 4}

A request that is refused is answered by {"error": ...}; the role goes on. "after" is optional: the model must hold at
least so many lessons.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from hiddenarm.errors import InputError
from hiddenarm.net.identity import Role
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.process import ActorClient, Endpoint, RewarderClient, serve

Request = dict[str, Any]


def serve_kit(folder: Path, listen_fd: int | None, report: Path | None, requests: TextIO, answers: TextIO) -> None:
    """Run the role of a kit to its end; `report` gets what the link's meter counted."""
    kit = Kit.read(folder)
    match kit.identity.role:
        case Role.ACTOR:
            _serve_actor(kit, requests, answers)
        case Role.REWARDER:
            _serve_rewarder(kit, requests, answers)
        case _:
            endpoint = Endpoint(kit)
            serve(endpoint, None if listen_fd is None else socket.socket(fileno=listen_fd))
            if report is not None:
                report.write_text(json.dumps(endpoint.meter.as_dict()))


def _serve_actor(kit: Kit, requests: TextIO, answers: TextIO) -> None:
    with ActorClient(kit) as actor:

        def answer(request: Request) -> Request:
            decision = actor.decide(_text(request, "key"), _count(request, "after"))
            return {"id": decision.id, "arm": decision.arm}

        _answer_all(requests, answers, answer)


def _serve_rewarder(kit: Kit, requests: TextIO, answers: TextIO) -> None:
    with RewarderClient(kit) as rewarder:

        def answer(request: Request) -> Request:
            identifier = _text(request, "id")
            if "reward" not in request:
                raise InputError("a request of the rewarder needs a reward")
            return {"id": identifier, "version": rewarder.reward(identifier, request["reward"])}

        _answer_all(requests, answers, answer)


def _answer_all(requests: TextIO, answers: TextIO, answer: Callable[[Request], Request]) -> None:
    for line in requests:
        try:
            reply = answer(_parsed(line))
        except InputError as error:
            reply = {"error": str(error)}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def _parsed(line: str) -> Request:
    try:
        request = json.loads(line)
    except json.JSONDecodeError:
        raise InputError("a request must be one JSON object a line") from None
    if not isinstance(request, dict):
        raise InputError("a request must be a JSON object")
    return request


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise InputError(f"a request needs {name!r}, a text")
    return value


def _count(request: Request, name: str) -> int:
    value = request.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InputError(f"{name!r} must be a whole number, not negative")
    return value
