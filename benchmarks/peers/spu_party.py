"""One party of the bandit step in SecretFlow SPU. Run by `benchmarks.peers` in an environment of its own.

    python spu_party.py TASK RESULT --rank I --ports 5000,5001 --protocol SEMI2K

Party 0 and 1 hold the features, party 0 is actor and rewarder, and the last party inputs the coins. An input is shared
by its owner, who sends each party its share; the arm's one-hot stays shared, and its shares are sent to party 0. The
programs are compiled from JAX once, before anything is timed. Nothing is imported from hiddenarm.
"""

from __future__ import annotations

import argparse
import marshal
from pathlib import Path
from time import perf_counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import spu
import spu.utils.frontend as frontend
from numpy.typing import NDArray

TIE_BITS = 16
NEWTON_START, NEWTON_SUM, NEWTON_STEPS = 2 / 7, 4, 3
"""See `mpyc_party`: the same tags and the same reciprocal."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--protocol", choices=("SEMI2K", "ABY3", "CHEETAH"), required=True)
    return parser.parse_args()


def decide(weights: Any, one: Any, other: Any, kept: Any, ties: Any) -> tuple[Any, Any, Any]:
    """The one-hot of the arm, the scores and the context. All pairs are compared at once, and the arm that beats all
    others has won: half the time of the framework's own argmax, whose index must be made a one-hot."""
    x = jnp.concatenate((one, other))
    scores = weights @ x
    keys = scores * kept + ties
    beats = (keys[:, None] > keys[None, :]).astype(jnp.int32)
    return (beats.sum(axis=1) > len(keys) - 2).astype(jnp.float32), scores, x


def learn(inverses: Any, weights: Any, x: Any, one_hot: Any, scores: Any, reward: Any) -> tuple[Any, Any]:
    """Sherman-Morrison for the arm that was pulled."""
    size = len(x)
    u = (one_hot @ inverses).reshape(size, size) @ x
    divisor = 1 + x @ u
    gain = NEWTON_START * (NEWTON_SUM - divisor)
    for _ in range(NEWTON_STEPS):
        gain = gain * (2 - divisor * gain)
    v = u * gain
    inverses = inverses - jnp.outer(one_hot, jnp.outer(v, u).reshape(-1))
    return inverses, weights + jnp.outer(one_hot, v * (reward - one_hot @ scores))


class Party:
    """A party with its links: one for the framework, and one beside it for shares of inputs and outputs."""

    def __init__(self, given: argparse.Namespace, fraction_bits: int) -> None:
        ports = given.ports.split(",")
        self.rank, self.size = given.rank, len(ports)
        self.config = spu.RuntimeConfig(
            protocol=getattr(spu.ProtocolKind, given.protocol),
            field=spu.FieldType.FM64,
            fxp_fraction_bits=fraction_bits,
        )
        desc = spu.link.Desc()
        for party, port in enumerate(ports):
            desc.add_party(f"party {party}", f"127.0.0.1:{port}")
        self.link = spu.link.create_brpc(desc, given.rank)
        self.talk = self.link.spawn()
        self.runtime = spu.Runtime(self.link, self.config)
        self.io = spu.Io(self.size, self.config)

    def put(self, name: str, owner: int, values: NDArray[np.float64]) -> None:
        """An input of one party: it sends each other its share."""
        if self.rank == owner:
            shares = self.io.make_shares(np.asarray(values, np.float32), spu.Visibility.VIS_SECRET)
            for party, share in enumerate(shares):
                if party != owner:
                    self.talk.send(party, _packed(share))
            own = shares[owner]
        else:
            own = _unpacked(self.talk.recv(owner))
        self.runtime.set_var(name, own)

    def open_to_first(self, name: str) -> NDArray[np.float64] | None:
        """A value for party 0 alone."""
        share = self.runtime.get_var(name)
        if self.rank:
            self.talk.send(0, _packed(share))
            return None
        others = [_unpacked(self.talk.recv(party)) for party in range(1, self.size)]
        return np.asarray(self.io.reconstruct([share, *others]))

    def compiled(self, program: Any, names: list[str], outputs: list[str], *shapes: tuple[int, ...]) -> Any:
        """A program on secret values, with the names that its inputs and results have at the runtime."""
        arguments = [np.zeros(shape, np.float32) for shape in shapes]
        secret = [spu.Visibility.VIS_SECRET] * len(names)
        executable, _ = frontend.compile(frontend.Kind.JAX, program, arguments, {}, names, secret, lambda _: outputs)
        return executable


def _packed(share: Any) -> bytes:
    return marshal.dumps((share.meta, list(share.share_chunks)))


def _unpacked(data: bytes) -> Any:
    share = spu.libspu.Share()
    share.meta, share.share_chunks = marshal.loads(data)
    return share


def main() -> None:
    given = arguments()
    task = dict(np.load(given.task).items())
    contexts, tags, cut = task["contexts"], task["tags"], int(task["cut"])
    steps, size = contexts.shape
    arms, bits = tags.shape[1], int(task["fraction_bits"])
    party = Party(given, bits)
    last = party.size - 1
    deciding = party.compiled(
        decide, ["weights", "one", "other", "kept", "ties"], ["one_hot", "scores", "x"],
        (arms, size), (cut,), (size - cut,), (1,), (arms,),
    )  # fmt: skip
    learning = party.compiled(
        learn, ["inverses", "weights", "x", "one_hot", "scores", "reward"], ["inverses", "weights"],
        (arms, size * size), (arms, size), (size,), (arms,), (arms,), (1,),
    )  # fmt: skip
    party.put("inverses", 0, np.repeat(np.eye(size)[None] / float(task["ridge"]), arms, axis=0).reshape(arms, -1))
    party.put("weights", 0, np.zeros((arms, size)))
    chosen, times = [], [perf_counter()]
    for step in range(steps):
        party.put("one", 0, contexts[step, :cut])
        party.put("other", 1, contexts[step, cut:])
        party.put("kept", last, np.array([1.0 - task["explore"][step]]))
        party.put("ties", last, tags[step] * 2.0**-TIE_BITS)
        party.runtime.run(deciding)
        opened = party.open_to_first("one_hot")
        arm = int(np.argmax(opened)) if opened is not None else 0
        chosen.append(arm)
        times.append(perf_counter())
        party.put("reward", 0, np.array([float(arm == task["labels"][step])]))
        party.runtime.run(learning)
    inverses, weights = party.open_to_first("inverses"), party.open_to_first("weights")
    times.append(perf_counter())
    if inverses is not None and weights is not None:
        np.savez(
            given.result,
            arms=np.array(chosen),
            times=np.array(times),
            inverses=inverses.reshape(arms, size, size),
            weights=weights,
            bytes_sent=-1,  # it does not tell
        )
    party.link.barrier()
    party.link.stop_link()


if __name__ == "__main__":
    main()
