"""What a role that serves does when it is sent a signal.

SIGTERM, SIGINT   finish what is under way, say goodbye, end with code 0
SIGHUP            read certificate and key anew; links that stand go on

Once it has ended, SIGTERM and SIGINT are ignored: the process is on its way out with the role's own code.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from hiddenarm.errors import HiddenArmError
from hiddenarm.service.kit import Kit
from hiddenarm.service.metrics import certificate_expiry
from hiddenarm.service.process import Endpoint, StopRequest

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeying_signals(endpoint: Endpoint, stop: StopRequest) -> Iterator[None]:
    """Obey signals meanwhile. Handlers only leave a note: the loop acts on it between two events. This is for a process
    that ends with its role."""
    transport, log = endpoint.transport, structlog.get_logger("hiddenarm.serve")

    def on_stop(number: int, _: object) -> None:
        if not stop.made:
            stop.made = True
            log.info("stopping", signal=signal.Signals(number).name)
        transport.wake()

    def on_renew(_: int, __: object) -> None:
        transport.after(0.0, lambda: _renew(endpoint))
        transport.wake()

    for number in _STOPS:
        signal.signal(number, on_stop)
    before = signal.signal(signal.SIGHUP, on_renew)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)


def _renew(endpoint: Endpoint) -> None:
    """Take the certificate that lies in the kit now; if it cannot be used, go on with the one in use."""
    log = structlog.get_logger("hiddenarm.serve")
    try:
        kit = Kit.read(endpoint.kit.folder)
        endpoint.transport.renew(kit.tls)
    except HiddenArmError as error:
        log.error("certificate not renewed", reason=str(error))
    else:
        log.info("certificate renewed", expires=round(certificate_expiry(kit.tls.certificate)))
