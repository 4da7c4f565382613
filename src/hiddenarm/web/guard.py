"""Who may call: whoever shows the role's token, `Authorization: Bearer TOKEN`.

The token is in the kit, `http.token`, and only its owner may read it. It is made when the server is first started. To
replace it, remove the file and start the role again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from hiddenarm.service.tokens import HTTP_TOKEN, shows
from hiddenarm.web import problems
from hiddenarm.web.problems import ProblemError


class Guard:
    """Knows the token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def check(self, request: Request) -> None:
        """Raise unless a request shows the token."""
        if not shows(request.headers.get("authorization", ""), self._token):
            raise ProblemError(
                problems.UNAUTHORIZED, f"send Authorization: Bearer with the token in {HTTP_TOKEN} of the role's kit"
            )


_bearer = HTTPBearer(auto_error=False, description=f"the token in {HTTP_TOKEN} of the role's kit")


class Guarded(APIRoute):
    """A path for callers with the token. It is looked at before anything else of the request is read."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        described = [*(options.pop("dependencies", None) or ()), Depends(_bearer)]
        super().__init__(path, endpoint, dependencies=described, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            request.app.state.guard.check(request)
            return await handler(request)

        return guarded
