from hiddenarm.ring.contraction import PlanWords
from hiddenarm.ring.words import Words

OPERATIONS: tuple[str, ...]
OPERATION_ARGUMENTS: tuple[tuple[int, int], ...]

def contract(plan: PlanWords, batch: int, out: Words, operands: tuple[Words, ...], /) -> None: ...
def contract_portably(plan: PlanWords, batch: int, out: Words, operands: tuple[Words, ...], /) -> None: ...
def execute(
    code: PlanWords,
    first: int,
    last: int,
    banks: tuple[Words, ...],
    received: tuple[bytes | None, ...],
    sent_length: int,
    /,
) -> bytes: ...
