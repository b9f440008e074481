"""Servers start in the order in which they were asked for, so many at a time, and a wait has its limit."""

from __future__ import annotations

import asyncio

import pytest

from autograder.hub.turns import Turns


class Spawner:
    """What Turns needs of a spawner: whether its server is starting."""

    def __init__(self) -> None:
        self.pending: str | None = "spawn"


async def came(turns: Turns, spawners: list[Spawner], order: list[int]) -> list[asyncio.Task[None]]:
    async def one(number: int) -> None:
        await turns.wait(spawners[number], limit_s=20)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(len(spawners))]
    await asyncio.sleep(0.5)
    return tasks


def test_servers_start_in_turn_and_so_many_at_a_time() -> None:
    async def morning() -> None:
        spawners, order = [Spawner() for _ in range(5)], list[int]()
        tasks = await came(Turns(2), spawners, order)
        assert order == [0, 1]
        spawners[1].pending = None  # is up
        await asyncio.sleep(0.5)
        assert order == [0, 1, 2]
        spawners[0].pending = spawners[2].pending = "stop"  # gave up
        await asyncio.gather(*tasks[:5])
        assert order == [0, 1, 2, 3, 4]

    asyncio.run(morning())


def test_a_server_that_starts_again_does_not_wait_for_itself() -> None:
    async def twice() -> None:
        turns, spawner = Turns(1), Spawner()
        await turns.wait(spawner, limit_s=5)
        await turns.wait(spawner, limit_s=5)

    asyncio.run(twice())


def test_a_wait_ends_and_those_behind_have_their_turn() -> None:
    async def busy() -> None:
        turns, first, later = Turns(1), Spawner(), Spawner()
        await turns.wait(first, limit_s=5)
        with pytest.raises(TimeoutError):
            await turns.wait(Spawner(), limit_s=0.5)
        first.pending = None
        await turns.wait(later, limit_s=5)
        assert list(turns.starting) and not turns.door.locked()

    asyncio.run(busy())
