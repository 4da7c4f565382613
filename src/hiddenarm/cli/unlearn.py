"""`hiddenarm unlearn KIT ID`: the rewarder, started from its kit for one request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from hiddenarm.cli.request_lines import unlearned
from hiddenarm.errors import ConfigError, HiddenArmError
from hiddenarm.net.identity import Role
from hiddenarm.service.application import RewarderClient
from hiddenarm.service.kit import Kit


def unlearn_decision(folder: Path, decision: str, answers: TextIO) -> None:
    """Have a decision unlearned, and write the answer as a line of JSON."""
    kit = Kit.read(folder)
    if kit.identity.role is not Role.REWARDER:
        raise ConfigError(f"{folder} is the kit of {kit.identity}; the rewarder asks for unlearning: name its kit")
    try:
        with RewarderClient(kit) as rewarder:
            answer = unlearned(rewarder, decision)
    except HiddenArmError as error:
        kit.organisations.put_into(error)
        raise
    answers.write(json.dumps(answer) + "\n")
