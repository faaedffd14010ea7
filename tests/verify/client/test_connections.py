"""Connections by themselves."""

from __future__ import annotations

import asyncio
import socket

from tests.verify.fake_vllm import serving
from verify.client.address import Address
from verify.client.connection import Connection, Connections


def connections(port: int) -> Connections:
    return Connections(
        Address("127.0.0.1", "127.0.0.1", port, "", None),
        2.0,
        on_read=lambda _exchange: None,
        on_lost=lambda _exchange, _exc: None,
        read_later=lambda _exchange: None,
    )


def test_who_wants_another_when_one_just_failed_gets_another_try() -> None:
    async def run(port: int) -> list[str]:
        some, whys = connections(port), list[str]()
        done = asyncio.get_running_loop().create_future()

        def fail(why: str, _is_ours: bool) -> None:
            whys.append(why)
            if len(whys) < 4:
                some.want(lambda _connection: None, fail)
            else:
                done.set_result(None)

        some.want(lambda _connection: None, fail)
        async with asyncio.timeout(5):
            await done
        return whys

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        assert asyncio.run(run(s.getsockname()[1])) == ["connection refused"] * 4


def test_spare_connections_are_opened_once_and_closed_when_stale() -> None:
    async def run(port: int) -> None:
        some = connections(port)
        some.open_ahead(3)
        some.open_ahead(3)
        assert some.spare == 3
        await asyncio.sleep(0.2)
        assert (some.spare, some.opened) == (3, 3)
        taken: list[Connection | None] = [some.take()[0] for _ in range(4)]
        assert taken[3] is None
        assert some.spare == 0
        for connection in taken[:3]:
            assert connection is not None
            connection.uses = 1
            some.give_back(connection)
        assert some.spare == 3
        await asyncio.sleep(1.3)
        some.trim()
        assert some.spare == 0
        await asyncio.sleep(0.05)
        assert not some.all
        some.close()

    with serving() as fake:
        asyncio.run(run(fake.options.port))


def test_a_connection_that_ended_at_rest_is_not_used() -> None:
    async def run(port: int, abort_all: object) -> None:
        some = connections(port)
        some.open_ahead(2)
        await asyncio.sleep(0.2)
        assert callable(abort_all)
        abort_all()
        some_time = 0
        while some.spare and some_time < 50:  # seen by the loop, or at the latest when taken
            connection, broken = some.take()
            assert connection is None
            assert broken > 0
            some_time += 1
            await asyncio.sleep(0.01)
        assert some.take()[0] is None
        some.close()

    with serving() as fake:

        def abort_all() -> None:
            for connection in list(fake.open):
                connection.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

        asyncio.run(run(fake.options.port, abort_all))
