"""Every frame as bytes in a file: what is said encodes to them, they decode to what is said, and some are rejected."""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import pytest
import wire_vectors
from wire_vectors import BY_NAME, FOLDER, KINDS, Stream, Vector, complaint, generate, read_stream, text_of

from hiddenarm.net.frames import Frame, encode
from hiddenarm.roles import messages
from hiddenarm.roles.epochs import plan

FILES: dict[str, dict[str, list[Vector]]] = {
    path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
ACCEPTED = [vector for vectors in FILES.values() for vector in vectors.get("accepted", ())]
REJECTED = [vector for name, vectors in FILES.items() for vector in vectors["rejected"] if name != "headers.json"]
HEADERS = FILES["headers.json"]["rejected"]


def title(vector: Any) -> str:
    return ": ".join(vector[name] for name in ("message", "case") if name in vector)


def frame_of(vector: Vector) -> Frame:
    (frame,) = read_stream(bytes.fromhex(vector["hex"]))
    return frame


@pytest.mark.parametrize("vector", ACCEPTED, ids=title)
def test_what_is_said_encodes_to_the_bytes_and_they_decode_to_it(vector: Vector) -> None:
    message = BY_NAME[vector["message"]]
    assert encode(message.write(vector["fields"])).hex() == vector["hex"]
    frame = frame_of(vector)
    assert frame[:4] == (KINDS[vector["kind"]], vector["program"], vector["round"], vector["step"])
    assert json.loads(json.dumps(message.read(frame))) == vector["fields"]


@pytest.mark.parametrize("vector", REJECTED, ids=title)
def test_a_message_is_rejected_with_its_error(vector: Vector) -> None:
    frame = frame_of(vector)
    assert complaint(lambda: BY_NAME[vector["message"]].read(frame)) == {key: vector[key] for key in ("error", "text")}


@pytest.mark.parametrize("vector", HEADERS, ids=title)
def test_a_header_is_rejected_with_its_error(vector: Vector) -> None:
    stream = Stream(bytes.fromhex(vector["hex"]), vector["caps"], tuple(vector["first"]))
    assert complaint(stream.read) == {key: vector[key] for key in ("error", "text")}


def test_the_files_are_those_that_are_generated() -> None:
    """After a change on purpose, `make vectors` writes them."""
    generated = {name: text_of(vectors) for name, vectors in generate().items()}
    assert generated == {path.name: path.read_text() for path in FOLDER.glob("*.json")}


def test_every_kind_has_a_vector_that_is_accepted() -> None:
    assert {vector["kind"] for vector in ACCEPTED} == KINDS.keys()


def test_every_message_that_roles_write_or_read_has_vectors() -> None:
    """All `..._frame` and `read_...` of `messages`; all of `epochs.plan` that can be encoded or decoded."""
    frames = {name for name, _ in inspect.getmembers(messages, inspect.isfunction) if name.endswith("_frame")}
    reads = {name for name, _ in inspect.getmembers(messages, inspect.isfunction) if name.startswith("read_")}
    statements = {name for name, each in inspect.getmembers(plan, inspect.isclass) if hasattr(each, "decode")}
    coded = {name for name, _ in inspect.getmembers(plan) if name.startswith(("encode_", "decode_"))}
    used = {node.id for node in ast.walk(ast.parse(inspect.getsource(wire_vectors))) if isinstance(node, ast.Name)}
    assert len(frames) > 7
    assert len(reads) > 7
    assert len(statements) > 5
    assert coded
    assert (frames | reads | statements | coded) - used == set()
