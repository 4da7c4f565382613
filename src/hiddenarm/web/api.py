"""The paths of actor and rewarder, in the shape that users of Azure Personalizer know.

    actor      POST /rank                        an action for the user with a key, under a client-made event id
    actor      POST /events/{eventId}/activate   the action of a deferred event was used: its reward may come
    rewarder   POST /events/{eventId}/reward     how good it was, from 0 to 1
    rewarder   POST /events/{eventId}/unlearn    the interaction is taken out of the model again

The actor's answers hold no reward, the rewarder's no action. What links the two is the id of the decision, which only
the actor can make and which it gives out once the event is active. An event without a name of its own is called by it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from hiddenarm.errors import HiddenArmError
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.joint_rewards import NamedReward
from hiddenarm.roles.messages import MAX_KEY_BYTES
from hiddenarm.service.application import ActorClient
from hiddenarm.service.kit import Kit
from hiddenarm.service.request_queue import RankQueue, RankRequest, RequestQueue, RewardQueue, UnlearnRequest
from hiddenarm.web import problems
from hiddenarm.web.event_ids import EVENT_ID
from hiddenarm.web.guard import Guarded
from hiddenarm.web.problems import ProblemError, problem_of

REQUEST_SECONDS: Final = 10.0
"""For an answer, unless the request says how long it waits."""
LEAST_BODY_BYTES: Final = 256 * 1024
"""What a body may have in every federation; `most_body_bytes` says how much more where there are many actions."""
_ACTION_BYTES: Final = 16
"""For `{"id": ""}, ` around an id, and some blanks."""
_LETTER_BYTES: Final = 12
"""JSON takes at most so many bytes for a letter: two halves, each \\u and four digits."""
DECISION_ID: Final = r"^[0-9a-f]{12}-[0-9]{6,20}-[0-9a-f]{16}$"
_DECISION_ID: Final = re.compile(DECISION_ID[1:-1], re.ASCII)
_COMMON: Final = (problems.UNAUTHORIZED, problems.TOO_LARGE, problems.INVALID_REQUEST, problems.INTERNAL)
_TIMELY: Final = (problems.UNAVAILABLE, problems.TIMEOUT)

EventId = Annotated[str, StringConstraints(pattern=EVENT_ID, max_length=100)]
DecisionId = Annotated[str, StringConstraints(pattern=DECISION_ID, max_length=50)]
ActionId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Seconds = Annotated[float, Field(ge=1, le=60)]
EventPath = Annotated[str, Path(alias="eventId", pattern=EVENT_ID, max_length=100)]
_Request = RankRequest | NamedReward | UnlearnRequest
Resolve = Callable[[str], str]
"""The id of the decision of an active event."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Action(_Strict):
    """An action by its id. Features of actions are not sent: where actions have some, the federation's table has
    them."""

    id: ActionId


class RankBody(_Strict):
    """Who is to be decided for, and among which actions."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_BYTES)]
    """The text by which all parties look up the features of this user."""
    eventId: EventId | None = None
    actions: Annotated[list[ActionId | Action], Field(min_length=1)] | None = None
    """The actions that may be chosen; all unless given."""
    excludedActions: list[ActionId] = []
    deferActivation: bool = False
    timeout: Seconds = REQUEST_SECONDS


class RankAnswer(BaseModel):
    """The chosen action. `decisionId` is what the rewarder needs; it is left out while the event is deferred."""

    eventId: str
    rewardActionId: str
    decisionId: str | None = None


class ActivateAnswer(BaseModel):
    """The event is active; `decisionId` is what the rewarder needs."""

    eventId: str
    decisionId: str


class RewardBody(_Strict):
    """How good the action was. `decisionId` may be left out where the rewarder knows the event."""

    value: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    decisionId: DecisionId | None = None
    timeout: Seconds = REQUEST_SECONDS


class RewardAnswer(BaseModel):
    """The reward counts: `version` is the first version of the model that holds it. With reward slots it is `kept` and
    learned with its slot."""

    eventId: str
    version: int | None = None
    kept: bool | None = None


class UnlearnBody(_Strict):
    """Which decision. `decisionId` may be left out where the rewarder knows the event."""

    decisionId: DecisionId | None = None
    timeout: Seconds = REQUEST_SECONDS


class UnlearnAnswer(BaseModel):
    """The interaction is unlearned: `version` is the first version of the model that does not hold it."""

    eventId: str
    version: int


def actor_router(client: ActorClient, queue: RankQueue, action_ids: Sequence[str]) -> APIRouter:
    """The actor's paths. `action_ids` are those of all arms, in their order."""
    router = APIRouter(route_class=Guarded, tags=["actor"])
    arms = {identifier: arm for arm, identifier in enumerate(action_ids)}

    @router.post(
        "/rank",
        operation_id="rank",
        summary="Choose an action",
        response_model=RankAnswer,
        response_model_exclude_none=True,
        responses=problems.problems(
            *(*_COMMON, *_TIMELY, problems.BUDGET_SPENT, problems.UNKNOWN_ACTION, problems.UNKNOWN_KEY),
            *(problems.EVENT_CONFLICT, problems.NO_ELIGIBLE_ACTION, problems.NOT_SUPPORTED, problems.NO_DECISION),
        ),
    )
    async def rank(body: RankBody) -> RankAnswer:
        event = _event_of(body)
        request = RankRequest(body.key, event, *_named_arms(body, arms), body.deferActivation)
        decision = await _answer(queue, request, body.timeout)
        return RankAnswer(
            eventId=event or decision.id,
            rewardActionId=action_ids[decision.arm],
            decisionId=None if body.deferActivation else decision.id,
        )

    @router.post(
        "/events/{eventId}/activate",
        operation_id="activate",
        summary="Let the event be rewarded",
        response_model=ActivateAnswer,
        responses=problems.problems(*_COMMON, *_TIMELY, problems.UNKNOWN_EVENT),
    )
    async def activate(event: EventPath) -> ActivateAnswer:
        decision = await _called(client.activate, event)
        return ActivateAnswer(eventId=event, decisionId=decision)

    return router


def rewarder_router(queue: RewardQueue, *, has_slots: bool, resolve: Resolve | None) -> APIRouter:
    """The rewarder's paths. `resolve` knows the decisions of events, where the actor is in the same hand."""
    router = APIRouter(route_class=Guarded, tags=["rewarder"])

    @router.post(
        "/events/{eventId}/reward",
        operation_id="reward",
        summary="Say how good the action was",
        response_model=RewardAnswer,
        response_model_exclude_none=True,
        responses=problems.problems(
            *(*_COMMON, *_TIMELY, problems.UNKNOWN_DECISION, problems.UNKNOWN_EVENT, problems.ALREADY_REWARDED),
            *(problems.EVENT_CONFLICT, problems.NOT_ACTIVATED, problems.REWARD_REFUSED, problems.NOT_SUPPORTED),
        ),
    )
    async def reward(event: EventPath, body: RewardBody) -> RewardAnswer:
        decision = body.decisionId or await _decision_of(event, resolve)
        version = await _answer(queue, NamedReward(decision, body.value, event), body.timeout)
        return RewardAnswer(eventId=event, kept=True) if has_slots else RewardAnswer(eventId=event, version=version)

    @router.post(
        "/events/{eventId}/unlearn",
        operation_id="unlearn",
        summary="Take the interaction out of the model",
        response_model=UnlearnAnswer,
        responses=problems.problems(
            *(*_COMMON, *_TIMELY, problems.UNKNOWN_DECISION, problems.UNKNOWN_EVENT, problems.NOT_ACTIVATED),
            *(problems.NOT_SUPPORTED, problems.UNLEARNING_REFUSED),
        ),
    )
    async def unlearn(event: EventPath, body: UnlearnBody | None = None) -> UnlearnAnswer:
        asked = body or UnlearnBody()
        decision = asked.decisionId or await _decision_of(event, resolve)
        return UnlearnAnswer(eventId=event, version=await _unlearned(queue, decision, asked.timeout))

    return router


def action_ids_of(kit: Kit) -> tuple[str, ...]:
    """What the arms are called: by their names, or else by their numbers."""
    return tuple(kit.file.names_of_arms) or tuple(str(arm) for arm in range(kit.federation.arms))


def most_body_bytes(action_ids: Sequence[str]) -> int:
    """Room for a request that names all actions as eligible, as objects with ids, and all as excluded, each letter
    escaped."""
    named = sum(_ACTION_BYTES + _LETTER_BYTES * len(identifier) for identifier in action_ids)
    return LEAST_BODY_BYTES + 2 * named


async def _decision_of(event: str, resolve: Resolve | None) -> str:
    """The decision of an event that was named without it."""
    if _DECISION_ID.fullmatch(event):
        return event
    if resolve is None:
        raise ProblemError(
            problems.UNKNOWN_EVENT,
            "this rewarder does not know the actor's events: send the decisionId that came with the answer to rank",
        )
    return await _called(resolve, event)


async def _called(call: Callable[[str], str], event: str) -> str:
    """Have a thread call something that may wait for a disk."""
    try:
        return await run_in_threadpool(call, event)
    except HiddenArmError as error:
        raise problem_of(error) from None


async def _unlearned(queue: RewardQueue, decision: str, seconds: float) -> int:
    try:
        version: int = await _answer(queue, UnlearnRequest(decision), seconds)
    except ProblemError as problem:
        if problem.code is problems.REWARD_REFUSED:  # the parties refuse lessons, and this is one
            raise ProblemError(problems.UNLEARNING_REFUSED, problem.detail) from None
        raise
    return version


async def _answer(queue: RequestQueue[Any, Any], request: _Request, seconds: float) -> Any:
    """Wait for the answer to a request, but not longer than it says."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(outcome: Any) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def deliver(outcome: Any) -> None:
        with suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    try:
        waiting = queue.put(request, deliver)
    except HiddenArmError as error:
        raise problem_of(error) from None
    try:
        outcome = await asyncio.wait_for(answered, seconds)
    except TimeoutError:
        raise ProblemError(
            problems.TIMEOUT, f"no answer within {seconds:g} seconds; the same request may be made again"
        ) from None
    finally:
        waiting.abandoned = True
    if isinstance(outcome, HiddenArmError):
        raise problem_of(outcome)
    return outcome


def _event_of(body: RankBody) -> str | None:
    """What the event is called: as the client says, or by a name of ours if it is deferred and the client gave none.
    Else it will be called by its decision."""
    if body.eventId is None:
        return fresh_key().hex()[:32] if body.deferActivation else None
    if _DECISION_ID.fullmatch(body.eventId):
        raise ProblemError(problems.INVALID_REQUEST, "eventId has the form of a decision's id: choose another")
    return body.eventId


def _named_arms(body: RankBody, arms: dict[str, int]) -> tuple[frozenset[int] | None, frozenset[int]]:
    """The arms that a request names as eligible, None if it names none, and those that it excludes."""
    named = None if body.actions is None else [one if isinstance(one, str) else one.id for one in body.actions]
    unknown = [identifier for identifier in (*(named or ()), *body.excludedActions) if identifier not in arms]
    if unknown:
        raise ProblemError(problems.UNKNOWN_ACTION, f"there is no action {unknown[0]!r}")
    eligible = None if named is None else frozenset(arms[identifier] for identifier in named)
    excluded = frozenset(arms[identifier] for identifier in body.excludedActions)
    if len(excluded) == len(arms) or (eligible is not None and eligible <= excluded):
        raise ProblemError(problems.NO_ELIGIBLE_ACTION, "all actions are excluded")
    return eligible, excluded
