from hiddenarm.ring.contraction import PlanWords
from hiddenarm.ring.words import Words

def contract(plan: PlanWords, batch: int, out: Words, operands: tuple[Words, ...], /) -> None: ...
