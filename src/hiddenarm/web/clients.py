"""Clients of the HTTP that actor and rewarder serve, blocking and for asyncio.

    with hiddenarm.Actor("http://127.0.0.1:8411", token_file="kits/actor/http.token") as actor:
        ranked = actor.rank("user 17", event_id="visit-1")
    with hiddenarm.Rewarder("http://127.0.0.1:8412", token_file="kits/rewarder/http.token") as rewarder:
        rewarder.reward(ranked, 1.0)

Many threads may share a blocking client, many tasks one for asyncio. What the server refuses is raised, as the error of
`hiddenarm.errors` that the role had. A request under the same event id gets the same answer, so after an
`UnavailableError` the application may make it again, or have the client do so: `patience` says for how many seconds.
Without it nothing is repeated.

The library that speaks HTTP is in the extra `http`, and is imported when a client is made: the classes are there
without it.
"""

from __future__ import annotations

import ssl
from asyncio import sleep as sleep_async
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from hiddenarm.errors import (
    BudgetSpentError,
    ConfigError,
    ConflictError,
    DecisionIdError,
    EventError,
    FeatureError,
    HiddenArmError,
    InputError,
    ProtocolError,
    RefusedRewardError,
    RewardedError,
    UnavailableError,
)
from hiddenarm.ring.streams import fresh_key
from hiddenarm.service.web_address import WebAddress
from hiddenarm.web.event_ids import check_event_id, event_path

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
LEAST_PAUSE: Final = 0.1
"""Seconds before a request is repeated."""
MAX_CONNECTIONS: Final = 100
_SPARE_SECONDS: Final = 5.0
"""For a server that answers when the time of a request is up."""
_ERRORS: Final[Mapping[str, type[HiddenArmError]]] = {
    "unauthorized": ConfigError,
    "budget_spent": BudgetSpentError,
    "unknown_key": FeatureError,
    "unknown_decision": DecisionIdError,
    "already_rewarded": RewardedError,
    "reward_refused": RefusedRewardError,
    "unlearning_refused": RefusedRewardError,
    "unknown_event": EventError,
    "event_conflict": ConflictError,
    "internal": ProtocolError,
    "no_decision": ProtocolError,
}
"""What is raised for a code; `InputError` for any other."""
_LATER: Final = ("unavailable", "timeout")


@dataclass(frozen=True, slots=True)
class Ranked:
    """The action that was chosen for an event; `decision_id` is what a rewarder needs, None while it is deferred."""

    event_id: str
    action: str
    decision_id: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class _Call:
    """A request: where to, with what, and how long it may take."""

    path: str
    body: Mapping[str, Any] | None
    seconds: float

    @property
    def options(self) -> dict[str, Any]:
        """For httpx."""
        return {"json": self.body, "timeout": self.seconds + _SPARE_SECONDS}


def _rank_call(
    key: str,
    event_id: str | None,
    actions: Sequence[str] | None,
    excluded: Sequence[str],
    deferred: bool,
    timeout: float,
) -> _Call:
    event = fresh_key().hex()[:32] if event_id is None else check_event_id(event_id)
    body: dict[str, Any] = {"key": key, "eventId": event, "timeout": timeout}
    if actions is not None:
        body["actions"] = list(actions)
    if excluded:
        body["excludedActions"] = list(excluded)
    if deferred:
        body["deferActivation"] = True
    return _Call("/rank", body, timeout)


def _reward_call(event: str | Ranked, value: float, decision_id: str | None, timeout: float) -> _Call:
    return _lesson_call(event, "reward", {"value": value}, decision_id, timeout)


def _unlearn_call(event: str | Ranked, decision_id: str | None, timeout: float) -> _Call:
    return _lesson_call(event, "unlearn", {}, decision_id, timeout)


def _lesson_call(
    event: str | Ranked, action: str, body: Mapping[str, Any], decision_id: str | None, timeout: float
) -> _Call:
    """What a rewarder is asked about an event, with the id of its decision if that is known."""
    decision = decision_id or (event.decision_id if isinstance(event, Ranked) else None)
    named = {} if decision is None else {"decisionId": decision}
    return _Call(event_path(_event_id(event), action), {**body, "timeout": timeout, **named}, timeout)


def _activate_call(event: str | Ranked) -> _Call:
    return _Call(event_path(_event_id(event), "activate"), None, REQUEST_SECONDS)


def _event_id(event: str | Ranked) -> str:
    return event.event_id if isinstance(event, Ranked) else event


def _ranked(answer: Mapping[str, Any]) -> Ranked:
    return Ranked(answer["eventId"], answer["rewardActionId"], answer.get("decisionId"))


def _answer_of(response: httpx.Response) -> dict[str, Any]:
    """The answer to a request; what is none is raised."""
    try:
        answer = response.json()
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    if response.is_success:
        return answer
    code, detail = answer.get("code", ""), answer.get("detail", f"the server answered {response.status_code}")
    if code in _LATER or response.status_code == 503:
        raise UnavailableError(detail, _retry_after(response))
    if code == "not_activated":
        raise EventError(detail, inactive=True)
    raise _ERRORS.get(code, InputError)(detail)


def _retry_after(response: httpx.Response) -> float:
    after = response.headers.get("retry-after", "")
    return float(after) if after.isascii() and after.isdigit() else RETRY_SECONDS


class _Patience:
    """For how long a request is repeated, from now on."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    def pause(self, error: UnavailableError) -> float:
        """Seconds to wait before a request that was answered by `error` is repeated; if no time is left, raise it."""
        left = self._ends - monotonic()
        if left <= 0:
            raise error
        return min(max(error.retry_after, LEAST_PAUSE), left)


def _checked_patience(seconds: float) -> float:
    if not (isfinite(seconds) and seconds >= 0):
        raise ConfigError(f"patience is {seconds}: it must be a number of seconds, 0 or more")
    return float(seconds)


class _Settings:
    """Where a server is, and what is shown to it."""

    def __init__(
        self,
        url: str | None,
        socket: Path | str | None,
        token: str | None,
        token_file: Path | str | None,
        authority: Path | str | None,
    ) -> None:
        if (url is None) is (socket is None):
            raise ConfigError("give the url of the server, or the path of its socket")
        if (token is None) is (token_file is None):
            raise ConfigError("give the token of the role, or the file that holds it: http.token in its kit")
        if url is not None:
            _check_url(url)
        self._base = url or "http://localhost"
        self._socket = socket
        self._token = token or _read(Path(str(token_file)))
        self._authority = authority

    @property
    def options(self) -> dict[str, Any]:
        """For a client of httpx. Settings of the environment, such as a proxy, would be shown the token."""
        return {"base_url": self._base, "headers": {"Authorization": f"Bearer {self._token}"}, "trust_env": False}

    @property
    def transport(self) -> dict[str, Any]:
        """For a transport of httpx."""
        httpx = _httpx()
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        trusted = {} if self._authority is None else {"verify": _trusting(self._authority)}
        at = {} if self._socket is None else {"uds": str(self._socket)}
        return {"limits": limits, **trusted, **at}


def _check_url(url: str) -> None:
    """Refuse to show the token in plain text to another machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is no url of a server, such as http://127.0.0.1:8411")
    if parts.scheme == "http" and not WebAddress(parts.hostname, 1).local:
        raise ConfigError(f"{url} is plain HTTP to another machine, and would show the token: use https")


def _trusting(authority: Path | str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except OSError:  # that of TLS among them
        raise ConfigError(f"{authority} is no file of a certificate to trust") from None


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read: it must hold the token of the role") from None


def _httpx() -> ModuleType:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ConfigError(f"a client of HTTP needs {error.name}: pip install 'hiddenarm[http]'") from None
    return httpx


def _unreached(error: Exception) -> UnavailableError:
    return UnavailableError(f"the server gave no answer: {type(error).__name__}", RETRY_SECONDS)


class _Blocking:
    """A client that waits. Many threads may use it at once. `patience` is for how many seconds it repeats what has no
    answer yet."""

    def __init__(
        self,
        url: str | None = None,
        *,
        socket: Path | str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        authority: Path | str | None = None,
        patience: float = 0.0,
    ) -> None:
        self._patience = _checked_patience(patience)
        settings = _Settings(url, socket, token, token_file, authority)
        httpx = _httpx()
        self._unanswered = httpx.HTTPError
        self._client = httpx.Client(transport=httpx.HTTPTransport(**settings.transport), **settings.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _post(self, call: _Call) -> dict[str, Any]:
        patience = _Patience(self._patience)
        while True:
            try:
                return self._post_once(call)
            except UnavailableError as error:
                sleep(patience.pause(error))

    def _post_once(self, call: _Call) -> dict[str, Any]:
        try:
            return _answer_of(self._client.post(call.path, **call.options))
        except self._unanswered as error:
            raise _unreached(error) from None


class _Asynchronous:
    """A client for asyncio. Many tasks may use it at once. `patience` as for `_Blocking`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        socket: Path | str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        authority: Path | str | None = None,
        patience: float = 0.0,
    ) -> None:
        self._patience = _checked_patience(patience)
        settings = _Settings(url, socket, token, token_file, authority)
        httpx = _httpx()
        self._unanswered = httpx.HTTPError
        transport = httpx.AsyncHTTPTransport(**settings.transport)
        self._client = httpx.AsyncClient(transport=transport, **settings.options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _post(self, call: _Call) -> dict[str, Any]:
        patience = _Patience(self._patience)
        while True:
            try:
                return await self._post_once(call)
            except UnavailableError as error:
                await sleep_async(patience.pause(error))

    async def _post_once(self, call: _Call) -> dict[str, Any]:
        try:
            return _answer_of(await self._client.post(call.path, **call.options))
        except self._unanswered as error:
            raise _unreached(error) from None


class Actor(_Blocking):
    """Asks an actor's server for actions. `url` or `socket` says where it is, `token` or `token_file` what to show;
    `authority` is the file of the certificate to trust for https, where the system does not. What has no answer yet is
    repeated for `patience` seconds, and the last attempt may take its own timeout longer; then `UnavailableError` is
    raised."""

    def rank(
        self,
        key: str,
        *,
        event_id: str | None = None,
        actions: Sequence[str] | None = None,
        excluded: Sequence[str] = (),
        deferred: bool = False,
        timeout: float = REQUEST_SECONDS,
    ) -> Ranked:
        """An action for the user with this key, chosen among `actions` but not those `excluded`. The event gets an id
        unless it is given one. One that is `deferred` is to be activated before it can be rewarded."""
        return _ranked(self._post(_rank_call(key, event_id, actions, excluded, deferred, timeout)))

    def activate(self, event: str | Ranked) -> str:
        """Let a deferred event be rewarded; return the id of its decision."""
        decision: str = self._post(_activate_call(event))["decisionId"]
        return decision


class Rewarder(_Blocking):
    """Brings rewards to a rewarder's server. `url`, `socket`, `token`, `token_file`, `authority` and `patience` as for
    `Actor`."""

    def reward(
        self,
        event: str | Ranked,
        value: float,
        *,
        decision_id: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> int | None:
        """Have the reward of an event learned. It is named by what `rank` returned, or by its id, with that of its
        decision where the rewarder does not know the event. The first version of the model that holds the reward; None
        with reward slots."""
        return self._post(_reward_call(event, value, decision_id, timeout)).get("version")

    def unlearn(self, event: str | Ranked, *, decision_id: str | None = None, timeout: float = REQUEST_SECONDS) -> int:
        """Have the interaction of an event, named as for `reward`, taken out of the model, or dropped if it has no
        reward. The first version of the model that does not hold it."""
        version: int = self._post(_unlearn_call(event, decision_id, timeout))["version"]
        return version


class AsyncActor(_Asynchronous):
    """`Actor` for asyncio."""

    async def rank(
        self,
        key: str,
        *,
        event_id: str | None = None,
        actions: Sequence[str] | None = None,
        excluded: Sequence[str] = (),
        deferred: bool = False,
        timeout: float = REQUEST_SECONDS,
    ) -> Ranked:
        """See `Actor.rank`."""
        return _ranked(await self._post(_rank_call(key, event_id, actions, excluded, deferred, timeout)))

    async def activate(self, event: str | Ranked) -> str:
        """See `Actor.activate`."""
        decision: str = (await self._post(_activate_call(event)))["decisionId"]
        return decision


class AsyncRewarder(_Asynchronous):
    """`Rewarder` for asyncio."""

    async def reward(
        self,
        event: str | Ranked,
        value: float,
        *,
        decision_id: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> int | None:
        """See `Rewarder.reward`."""
        return (await self._post(_reward_call(event, value, decision_id, timeout))).get("version")

    async def unlearn(
        self, event: str | Ranked, *, decision_id: str | None = None, timeout: float = REQUEST_SECONDS
    ) -> int:
        """See `Rewarder.unlearn`."""
        version: int = (await self._post(_unlearn_call(event, decision_id, timeout)))["version"]
        return version
