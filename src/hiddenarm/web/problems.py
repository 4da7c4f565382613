"""What an answer says when it is no answer: a status, a code with a name, and a sentence (RFC 9457).

No sentence holds a share, a key of the federation, a feature or a reward. The key of a user that was refused is told to
whoever named it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from hiddenarm.errors import (
    BudgetSpentError,
    ConflictError,
    DecisionIdError,
    EventError,
    FeatureError,
    HiddenArmError,
    InputError,
    NoArmError,
    RefusedRewardError,
    RewardedError,
    UnavailableError,
)

PROBLEM_TYPE: Final = "application/problem+json"
GONE_SECONDS: Final = 5
OF_A_REQUEST: Final = (InputError, NoArmError, BudgetSpentError, UnavailableError)
"""Errors of one request, after which the role goes on. Any other of ours has ended the role."""


class Problem(BaseModel):
    """Why there is no answer."""

    code: str
    """What went wrong, as a name for programs."""
    status: int
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class Code:
    """A name for programs, the status that it comes with, and what it means."""

    name: str
    status: int
    title: str


UNAUTHORIZED: Final = Code("unauthorized", 401, "the token is missing or wrong")
BUDGET_SPENT: Final = Code("budget_spent", 403, "the federation has spent its privacy budget: there are no decisions")
NOT_FOUND: Final = Code("not_found", 404, "there is no such path")
UNKNOWN_ACTION: Final = Code("unknown_action", 404, "there is no action with this id")
UNKNOWN_DECISION: Final = Code("unknown_decision", 404, "no such decision was made")
UNKNOWN_EVENT: Final = Code("unknown_event", 404, "no decision is known under this event id")
UNKNOWN_KEY: Final = Code("unknown_key", 404, "a party has no usable features under this key")
METHOD_NOT_ALLOWED: Final = Code("method_not_allowed", 405, "the path has another method")
ALREADY_REWARDED: Final = Code("already_rewarded", 409, "the decision was rewarded before, or its reward slot was sent")
EVENT_CONFLICT: Final = Code("event_conflict", 409, "this event id was used before, with other content")
NO_ELIGIBLE_ACTION: Final = Code("no_eligible_action", 409, "no action is left to choose from")
NOT_ACTIVATED: Final = Code("not_activated", 409, "the event was deferred and is not activated")
NOT_SUPPORTED: Final = Code("not_supported", 409, "this federation cannot do what the request asks for")
REWARD_REFUSED: Final = Code("reward_refused", 409, "the parties have refused to learn the reward")
UNLEARNING_REFUSED: Final = Code("unlearning_refused", 409, "the parties have refused to unlearn the interaction")
TOO_LARGE: Final = Code("too_large", 413, "the body is too large")
INVALID_REQUEST: Final = Code("invalid_request", 422, "the request is not what the path takes")
INTERNAL: Final = Code("internal", 500, "the server failed; its log has the name of the error")
NO_DECISION: Final = Code("no_decision", 500, "no arm was found for the key")
UNAVAILABLE: Final = Code("unavailable", 503, "not now; make the same request again after Retry-After")
TIMEOUT: Final = Code("timeout", 504, "no answer came in time; make the same request again")
CODES: Final = (
    *(UNAUTHORIZED, BUDGET_SPENT, NOT_FOUND, UNKNOWN_ACTION, UNKNOWN_DECISION, UNKNOWN_EVENT, UNKNOWN_KEY),
    *(METHOD_NOT_ALLOWED, ALREADY_REWARDED, EVENT_CONFLICT, NO_ELIGIBLE_ACTION, NOT_ACTIVATED, NOT_SUPPORTED),
    *(REWARD_REFUSED, UNLEARNING_REFUSED, TOO_LARGE, INVALID_REQUEST, INTERNAL, NO_DECISION, UNAVAILABLE, TIMEOUT),
)


class ProblemError(Exception):
    """A request ends with a problem."""

    def __init__(self, code: Code, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retry_after = retry_after


def problem_of(error: HiddenArmError) -> ProblemError:
    """The problem that an error of the role is, for whoever made the request. What has ended the role, whatever it is,
    is no fault of the request: it may be made again when the role has been started again."""
    if not isinstance(error, OF_A_REQUEST):
        return ProblemError(UNAVAILABLE, f"this role has ended: {error}", GONE_SECONDS)
    return ProblemError(_code_of(error), str(error), error.retry_after if isinstance(error, UnavailableError) else None)


def _code_of(error: HiddenArmError) -> Code:
    match error:
        case UnavailableError():
            return UNAVAILABLE
        case BudgetSpentError():
            return BUDGET_SPENT
        case NoArmError():
            return NO_DECISION
        case FeatureError():
            return UNKNOWN_KEY
        case RewardedError():
            return ALREADY_REWARDED
        case RefusedRewardError():
            return REWARD_REFUSED
        case DecisionIdError():
            return UNKNOWN_DECISION
        case EventError():
            return NOT_ACTIVATED if error.inactive else UNKNOWN_EVENT
        case ConflictError():
            return EVENT_CONFLICT
        case _:
            return NOT_SUPPORTED


def problem_response(problem: ProblemError) -> JSONResponse:
    code = problem.code
    body = Problem(code=code.name, status=code.status, title=code.title, detail=problem.detail)
    headers = {} if problem.retry_after is None else {"Retry-After": str(max(1, ceil(problem.retry_after)))}
    if code is UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body.model_dump(), code.status, headers, PROBLEM_TYPE)


_SCHEMA: Final = Problem.model_json_schema()


def problems(*codes: Code) -> dict[int | str, dict[str, object]]:
    """The problems of a path, for its description."""
    described: dict[int | str, dict[str, object]] = {}
    for code in sorted(codes, key=lambda code: code.status):
        line = f"`{code.name}`: {code.title}"
        if code.status in described:
            line = f"{described[code.status]['description']}; {line}"
        described[code.status] = {"description": line, "content": {PROBLEM_TYPE: {"schema": _SCHEMA}}}
    return described
