"""How many rounds the operations take, declared; the tests compare this with what was counted on the links."""

from __future__ import annotations

from hiddenarm.paper.fixed_point import SQUARES

ADDITION = 0
BEAVER = 1
DIVISION = 1
MULTIPLICATION = BEAVER + DIVISION
ADDER = 1 + 6
"""Two words of 64 bits: the carries, then log2 64 levels."""
SHARE_SHARES = 1
BINARY_TO_ARITHMETIC = 1


def exponential() -> int:
    return DIVISION + SQUARES * MULTIPLICATION


def reciprocal(iterations: int) -> int:
    return exponential() + iterations * 2 * MULTIPLICATION


def carry_save(parties: int) -> int:
    """Levels until the shares of so many parties are two words."""
    levels = 0
    while parties > 2:
        parties -= parties // 3
        levels += 1
    return levels


def arithmetic_to_binary(parties: int) -> int:
    return SHARE_SHARES + carry_save(parties) + ADDER


def comparison(parties: int) -> int:
    return arithmetic_to_binary(parties) + BINARY_TO_ARITHMETIC


def maxima(parties: int, arms: int) -> int:
    """Algorithm 2: the comparison, then a tree of ceil(log2(arms - 1)) products of bits."""
    return comparison(parties) + (arms - 2).bit_length() * BEAVER


def argmax(parties: int, arms: int) -> int:
    return 2 * maxima(parties, arms) + BEAVER


def decide(parties: int, arms: int) -> int:
    """Weights and scores, the mixture with the samples, the argmax. Features are shared beside the weights."""
    return 2 * MULTIPLICATION + BEAVER + argmax(parties, arms)


def learn(iterations: int) -> int:
    """M x; x'Mx beside Mx x'M; the reciprocal; their product; the choice of the arm."""
    return 3 * MULTIPLICATION + reciprocal(iterations) + BEAVER
