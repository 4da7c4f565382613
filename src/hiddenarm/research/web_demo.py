"""`hiddenarm demo --web`: all roles of a demo side by side on one page of this machine, with the learning curve.

The page is that of a role (`service/dashboard.py`), for all of them. Each role's part comes from the role itself, with
what it may know; only here, where one person plays all roles, they are shown together. What the demo's world knows, the
rewards of the private learner and of its plain twin, comes from the demo. A role that does not answer is shown so, with
the last that it said.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self

from hiddenarm.net.identity import Identity
from hiddenarm.net.monitor import HOST, is_loopback
from hiddenarm.research.progress import Standing
from hiddenarm.service.dashboard import DATA_PATH, PAGE_PATH, page_text

MOST_POINTS: Final = 400
"""Of the learning curve; every other one is dropped when there are more."""
_ANSWER_SECONDS: Final = 3.0


class Curve:
    """Mean rewards so far, by step, thinned as it grows."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.ended = ""
        self._every = 1
        self._points: list[tuple[int, float | None, float | None]] = []
        self._standing = Standing()

    def update(self, standing: Standing) -> None:
        self._standing = standing
        if standing.steps % self._every == 0:
            self._points.append((standing.steps, standing.reward, standing.plain_reward))
        if len(self._points) > MOST_POINTS:
            self._points, self._every = self._points[1::2], 2 * self._every

    def to_dict(self) -> dict[str, Any]:
        now = self._standing
        last = [(now.steps, now.reward, now.plain_reward)] if now.steps and self._points[-1:] else []
        means = {"reward": now.reward, "plain_reward": now.plain_reward, "agreement": now.agreement}
        return {"steps": now.steps, "total": self.total, "ended": self.ended, "curve": self._points + last, **means}


class DemoPage:
    """Serves the page at a port of this machine. A context manager."""

    def __init__(self, ports: dict[Identity, int], curve: Curve, port: int = 0) -> None:
        self._ports = ports
        self._curve = curve
        self._last: dict[Identity, dict[str, Any]] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(len(ports))
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """The terminal is for the demo."""

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}/"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, name="demo page", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown(wait=False)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if not is_loopback(request.headers.get("Host", "")):
            status, kind, body = 403, "text/plain", f"only under {HOST}\n"
        elif request.path in ("/", PAGE_PATH):
            status, kind, body = 200, "text/html; charset=utf-8", page_text()
        elif request.path == DATA_PATH:
            status, kind, body = 200, "application/json", json.dumps(self.data())
        else:
            status, kind, body = 404, "text/plain", f"here are / and {DATA_PATH}\n"
        content = body.encode()
        request.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
        ):
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    def data(self) -> dict[str, Any]:
        """All roles, asked at the same time, and the curve."""
        return {"roles": list(self._pool.map(self._role, self._ports)), "demo": self._curve.to_dict()}

    def _role(self, identity: Identity) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{self._ports[identity]}{DATA_PATH}", timeout=_ANSWER_SECONDS
            ) as answer:
                (role,) = json.loads(answer.read())["roles"]
        except (OSError, ValueError, KeyError):
            with self._lock:
                known = self._last.get(
                    identity, {"role": str(identity), "kind": identity.role.value, "name": str(identity)}
                )
            return {
                **known,
                "down": True,
                "reasons": ["it does not answer: it has ended, or its loop does not run"],
                "notes": [],
            }
        with self._lock:
            self._last[identity] = role
        return dict(role)
