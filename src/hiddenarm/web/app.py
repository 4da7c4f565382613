"""The application that a role serves by HTTP: its own paths, health, and a description of both (`/openapi.json`).

    /livez          200 if the loop of the role runs
    /readyz         200 if decisions can be served, 503 with the reasons if not

These two and the description need no token. Whatever else a role shows is a router of its own: see `WebServer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError

from hiddenarm.net.monitor import LOOP_SECONDS, Page
from hiddenarm.net.transport import Transport
from hiddenarm.service.metrics import Observer, live_page, ready_page
from hiddenarm.service.process import Endpoint
from hiddenarm.web import problems
from hiddenarm.web.api import action_ids_of, most_body_bytes
from hiddenarm.web.guard import Guard
from hiddenarm.web.problems import Code, ProblemError, problem_response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
"""As ASGI has it."""


def build_app(endpoint: Endpoint, guard: Guard, routers: Sequence[APIRouter]) -> FastAPI:
    """The application of a role."""
    identity = endpoint.kit.identity
    app = FastAPI(
        title=f"hiddenarm {identity}",
        version=version("hiddenarm"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.guard = guard
    app.include_router(_health(endpoint))
    for router in routers:
        app.include_router(router)
    tell_problems(app)
    app.add_middleware(BodyLimit, most=most_body_bytes(action_ids_of(endpoint.kit)))
    return app


async def made_by_loop(transport: Transport, make: Callable[[], Page]) -> Page:
    """A page that the loop of the role makes, so that it says that the loop runs; 503 if it does not do so in time."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Page] = loop.create_future()

    def settle(page: Page) -> None:
        if not made.done():
            made.set_result(page)

    def run() -> None:
        page = make()
        with suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(settle, page)

    transport.call(run)
    try:
        return await asyncio.wait_for(made, LOOP_SECONDS)
    except TimeoutError:
        raise ProblemError(
            problems.UNAVAILABLE, f"the loop of this role has not answered for {LOOP_SECONDS:g} seconds", LOOP_SECONDS
        ) from None


def _health(endpoint: Endpoint) -> APIRouter:
    router, observer = APIRouter(tags=["health"]), Observer(endpoint)
    not_now: dict[int | str, dict[str, Any]] = {503: {"description": "not now, with the reasons"}}

    @router.get("/livez", operation_id="live", summary="Whether the role runs", responses=not_now)
    async def live() -> Response:
        return _response(await made_by_loop(endpoint.transport, live_page))

    @router.get("/readyz", operation_id="ready", summary="Whether decisions can be served", responses=not_now)
    async def ready() -> Response:
        return _response(await made_by_loop(endpoint.transport, lambda: ready_page(observer)))

    return router


def _response(page: Page) -> Response:
    return Response(page.body, page.status, media_type=page.kind)


def tell_problems(app: FastAPI) -> None:
    """Have everything that goes wrong told in the same form."""
    log = structlog.get_logger("hiddenarm.web")

    @app.exception_handler(ProblemError)
    async def _problem(_: Request, problem: ProblemError) -> Response:
        return problem_response(problem)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return problem_response(ProblemError(problems.INVALID_REQUEST, _first_mistake(error)))

    def of_framework(code: Code) -> Callable[[Request, Exception], Response]:
        def tell(_: Request, error: Exception) -> Response:
            response = problem_response(ProblemError(code, str(getattr(error, "detail", code.title))))
            response.headers.update(getattr(error, "headers", None) or {})
            return response

        return tell

    for code in (problems.NOT_FOUND, problems.METHOD_NOT_ALLOWED, problems.TOO_LARGE):
        app.add_exception_handler(code.status, of_framework(code))
    app.add_exception_handler(400, of_framework(problems.INVALID_REQUEST))

    @app.exception_handler(Exception)
    async def _failed(_: Request, error: Exception) -> Response:
        log.error("request failed", kind=type(error).__name__)
        return problem_response(ProblemError(problems.INTERNAL, type(error).__name__))


def _first_mistake(error: RequestValidationError) -> str:
    """Where the first mistake is and what it is; not what stood there."""
    mistake: dict[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in mistake["loc"])
    return f"{where}: {mistake['msg']}"


class BodyLimit:
    """Refuses a body with more than `most` bytes, before it is kept."""

    def __init__(self, app: Application, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(problems.TOO_LARGE.status, f"a body may have {self._most:,} bytes")
            return message

        await self._app(scope, limited, send)
