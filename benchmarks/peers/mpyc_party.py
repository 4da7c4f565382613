"""One party of the bandit step in MPyC. Run by `benchmarks.peers` in an environment of its own, once for each party.

    python mpyc_party.py TASK RESULT --rank I --ports 5000,5001,5002

Shares are Shamir's over a prime field, of degree (m - 1) // 2: of degree 0 with two parties, so that a share is the
secret itself. Party 0 and 1 hold the features, party 0 is actor and rewarder, and the last party inputs the coins. Only
party 0 gets the arm. Nothing is imported from hiddenarm: the environment has MPyC and what that needs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

INTEGER_BITS = 20
"""Of numbers: scores and the entries of M are far smaller."""
TIE_BITS = 16
"""Tags are units of this bit, well above the last one, in which products are off by one."""
NEWTON_START, NEWTON_SUM, NEWTON_STEPS = 2 / 7, 4, 3
"""The divisor d = 1 + x'Mx lies in 1..3, as each party's features have a norm of 1 at most. Three steps from the line
2/7 (4 - d) leave 2^-22: cheaper than the framework's own division, which must find out how large the divisor is."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ports", required=True)
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    addresses = [f"-P127.0.0.1:{port}" for port in given.ports.split(",")]
    sys.argv = [sys.argv[0], *addresses, f"-I{given.rank}", "--no-log"]
    from mpyc.runtime import mpc  # reads the command line

    task = dict(np.load(given.task).items())
    number = mpc.SecFxp(INTEGER_BITS + int(task["fraction_bits"]), int(task["fraction_bits"]))
    contexts, tags = task["contexts"], task["tags"]
    steps, size = contexts.shape
    arms, cut = tags.shape[1], int(task["cut"])
    last = len(addresses) - 1

    def from_party(party: int, values: NDArray[np.float64], integral: bool = False) -> Any:
        """Input of one party; what others give here is not used."""
        own = values if given.rank == party else np.zeros_like(values)
        return mpc.input(number.array(np.asarray(own, np.float64), integral=integral), senders=party)

    await mpc.start()
    inverses = number.array(np.repeat(np.eye(size)[None] / float(task["ridge"]), arms, axis=0).reshape(arms, -1))
    weights = number.array(np.zeros((arms, size)))
    chosen, times = [], [perf_counter()]
    for step in range(steps):
        parts = from_party(0, contexts[step, :cut]), from_party(1, contexts[step, cut:])
        x = mpc.np_concatenate(parts)
        kept = from_party(last, np.array([1.0 - task["explore"][step]]), integral=True)
        ties = from_party(last, tags[step] * 2.0**-TIE_BITS)
        scores = weights @ x
        one_hot = mpc.np_argmax(scores * kept + ties, arg_unary=True)
        opened = await mpc.output(one_hot, receivers=[0])
        arm = int(np.argmax(opened)) if given.rank == 0 else 0
        chosen.append(arm)
        times.append(perf_counter())

        reward = from_party(0, np.array([float(arm == task["labels"][step])]), integral=True)
        u = mpc.np_reshape(one_hot @ inverses, (size, size)) @ x
        divisor = 1 + x @ u
        gain = NEWTON_START * (NEWTON_SUM - divisor)
        for _ in range(NEWTON_STEPS):
            gain = gain * (2 - divisor * gain)
        v = u * gain
        inverses = inverses - mpc.np_outer(one_hot, mpc.np_flatten(mpc.np_outer(v, u)))
        weights = weights + mpc.np_outer(one_hot, v * (reward - one_hot @ scores))
    learned = [await mpc.output(array, receivers=[0]) for array in (inverses, weights)]
    times.append(perf_counter())
    sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    if given.rank == 0:
        np.savez(
            given.result,
            arms=np.array(chosen),
            times=np.array(times),
            inverses=np.asarray(learned[0], float).reshape(arms, size, size),
            weights=np.asarray(learned[1], float),
            bytes_sent=sent,
        )
    await mpc.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
