"""When the last party orders corrections: before they are needed, when there is time, and no more than is usual."""

from __future__ import annotations

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, LEARN_ONE, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.roles.messages import DEALER, Kind, read_want, run_frame
from hiddenarm.roles.supply import Supply
from support import fixed_key

FEDERATION = Federation(arms=3, features=(2, 2), epsilon=0.1)
STOCK = 16
SEEDS = Seeds(fixed_key("supply"))
Order = tuple[ProgramId, int, int]


class Shop:
    """The last party's supply and a dealer that delivers when asked to."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self._dealers: dict[ProgramId, ProgramDealer] = {}
        self.supply = Supply(FEDERATION, 1, self._take_order, STOCK, expand_ahead=4)
        self.supply.set_seed(SEEDS.party(1), (DECIDE_ONE, LEARN_ONE))

    def _take_order(self, identity: Identity, frame: Frame) -> None:
        assert identity == DEALER
        self.orders.append(read_want(frame))

    def deliver(self) -> list[Order]:
        """Deal all that was ordered, and what is ordered on delivery; return the orders."""
        delivered: list[Order] = []
        while self.orders:
            program, first, count = order = self.orders.pop(0)
            rows = self._dealer(program).deal(first, count)
            self.supply.on_corrections(run_frame(Kind.CORRECTIONS, program, first, payload=rows.tobytes()))
            delivered.append(order)
        return delivered

    def use(self, program: ProgramId, step: int) -> None:
        if not self.supply.ready(program, step):
            self.deliver()
        assert self.supply.ready(program, step)
        self.supply.begin(program, step)

    def _dealer(self, program: ProgramId) -> ProgramDealer:
        if program not in self._dealers:
            text = program_text(FEDERATION, program)
            layout = layout_of(text, FEDERATION.parties, 1)
            self._dealers[program] = ProgramDealer(program.label, text, layout, SEEDS, 1)
        return self._dealers[program]


def steps_of(orders: list[Order], program: ProgramId) -> list[int]:
    return [step for ordered, first, count in orders if ordered == program for step in range(first, first + count)]


def test_half_the_stock_is_ordered_at_once_and_the_rest_when_there_is_time() -> None:
    shop = Shop()
    assert steps_of(shop.deliver(), DECIDE_ONE) == list(range(3 * STOCK // 4))
    shop.supply.stock_up()
    assert steps_of(shop.deliver(), DECIDE_ONE) == list(range(3 * STOCK // 4, STOCK))
    shop.supply.stock_up()
    assert not shop.orders


def test_while_busy_nothing_is_ordered_until_half_of_the_stock_is_used() -> None:
    shop = Shop()
    shop.deliver()
    shop.supply.stock_up()
    shop.deliver()
    for step in range(STOCK // 2 - 1):
        shop.use(DECIDE_ONE, step)
    assert not shop.orders
    shop.use(DECIDE_ONE, STOCK // 2 - 1)
    assert steps_of(shop.orders, DECIDE_ONE) == list(range(STOCK, STOCK + STOCK // 4))


def test_an_unusual_number_at_once_is_ordered_step_by_step() -> None:
    shop = Shop()
    shop.deliver()
    seven = ProgramId(DECIDE, 7)
    for step in range(3):
        assert not shop.supply.ready(seven, step)
        assert steps_of(shop.deliver(), seven) == [step]
        shop.use(seven, step)
        shop.supply.stock_up()
        assert not steps_of(shop.orders, seven)
        shop.deliver()


def test_what_became_usual_is_kept_in_stock() -> None:
    shop = Shop()
    seven = ProgramId(DECIDE, 7)
    for step in range(4):
        shop.use(seven, step)
    shop.deliver()
    shop.supply.stock_up()
    shop.deliver()
    assert all(shop.supply.ready(seven, step) for step in range(4, 4 + STOCK))


def test_every_step_is_ordered_once() -> None:
    shop, seen = Shop(), []
    for step in range(5 * STOCK):
        seen += steps_of(shop.deliver(), LEARN_ONE)
        shop.use(LEARN_ONE, step)
        if step % 7 == 0:
            shop.supply.stock_up()
    seen += steps_of(shop.deliver(), LEARN_ONE)
    assert seen == list(range(len(seen)))
    assert len(seen) <= 5 * STOCK + STOCK
