"""Whose a port is: nobody's, a listener's, or a server's that has bound it and still loads."""

from __future__ import annotations

import os
import socket

import msgspec
import pytest

from advisor.plan_types import Finding
from launch.check_ports import check_ports
from launch.ports import PortState, ask_port, free_port_near, listener_pids
from tests.launch.engines import command, free_port

FREE = PortState(state="free")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


IPV6 = ["::", "::1"] if has_ipv6() else []


@pytest.mark.parametrize("host", ["", "127.0.0.1", "0.0.0.0", *IPV6])
def test_a_free_port_is_free(host: str) -> None:
    assert ask_port(host, free_port()) == FREE


@pytest.mark.parametrize("where", ["127.0.0.1", "0.0.0.0", *IPV6[:1]])
@pytest.mark.parametrize("host", ["", "127.0.0.1", "0.0.0.0"])
def test_a_listener_is_seen_and_named(where: str, host: str) -> None:
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    with socket.create_server((where, 0), family=family, dualstack_ipv6=":" in where) as other:
        port = other.getsockname()[1]
        state = ask_port(host, port)
        assert state.state == "listening"
        assert state.holders[0][0] == os.getpid()
        assert listener_pids(port) == {os.getpid()}


def test_a_listener_on_another_address_does_not_matter() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        assert ask_port("127.0.0.1", other.getsockname()[1]) == FREE


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_server_that_has_bound_and_still_loads_is_seen(host: str) -> None:
    """As vLLM does it: with SO_REUSEADDR, long before it listens."""
    with socket.socket() as loading:
        loading.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        loading.bind((host, 0))
        assert ask_port(host, loading.getsockname()[1]).state == "bound"


def test_connections_of_an_earlier_server_do_not_matter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as earlier:
        port = earlier.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), earlier.accept()[0] as served:
            served.shutdown(socket.SHUT_WR)
    assert ask_port("", port) == FREE


@pytest.mark.parametrize("host", ["10.255.255.254", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_none(host: str) -> None:
    assert ask_port(host, free_port()).state == "no_address"


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


@pytest.mark.parametrize(
    ("words", "env", "state", "expected"),
    [
        pytest.param((), {}, FREE, [], id="all-well"),
        pytest.param((), {"VLLM_PORT": "tcp://10.0.0.1:8000"}, FREE, ["port-is-uri"], id="kubernetes-service"),
        pytest.param((), {"VLLM_PORT": "eight"}, FREE, ["port-is-uri"], id="no-number"),
        pytest.param((), {"VLLM_PORT": "9000"}, FREE, [], id="another-port"),
        pytest.param((), {"VLLM_PORT": "8123"}, FREE, ["ports-collide"], id="vllm-port-is-ours"),
        pytest.param(
            ("--data-parallel-size", "2", "--data-parallel-rpc-port", "8123"), {}, FREE, ["ports-collide"], id="rpc"
        ),
        pytest.param(
            ("--data-parallel-size=2", "--data_parallel_rpc_port=9000", "--grpc-port", "9000"),
            {},
            FREE,
            ["ports-collide"],
            id="rpc-and-grpc",
        ),
        pytest.param(("--nnodes", "2"), {"VLLM_PORT": "29501"}, FREE, ["ports-collide"], id="the-default-master-port"),
        pytest.param((), {}, PortState(state="listening", holders=((7, "nginx"),)), ["port-in-use"], id="in-use"),
        pytest.param((), {}, PortState(state="bound"), ["port-in-use"], id="loading-neighbour"),
        pytest.param((), {}, PortState(state="forbidden"), ["port-forbidden"], id="privileged"),
        pytest.param((), {}, PortState(state="no_address"), ["host-not-here"], id="not-our-address"),
        pytest.param(
            ("--data-parallel-size", "2"),
            {"VLLM_PORT": "tcp://x"},
            PortState(state="bound"),
            ["port-is-uri", "port-in-use", "port-in-use"],
            id="all-at-once",
        ),
    ],
)
def test_ports_before_a_start(
    words: tuple[str, ...], env: dict[str, str], state: PortState, expected: list[str]
) -> None:
    plain = command(port=8123)
    wanted = msgspec.structs.replace(plain, argv=(*plain.argv, *words))
    asked: list[tuple[str, int]] = []

    def ask(host: str, port: int) -> PortState:
        asked.append((host, port))
        return state

    found = check_ports(wanted, env, ask)
    assert codes(found) == expected
    assert asked[0] == ("127.0.0.1", 8123)
    assert all(finding.severity == "error" and finding.remedy for finding in found)


def test_who_has_the_port_is_said() -> None:
    seen = PortState(state="listening", holders=((7, "nginx -g"),))
    assert "pid 7 (nginx -g)" in check_ports(command(port=8123), {}, lambda *_: seen)[0].message
    unseen = PortState(state="listening")
    assert "another program" in check_ports(command(port=8123), {}, lambda *_: unseen)[0].message
    assert codes(check_ports(command(port=99999), {}, lambda *_: unseen)) == ["port-forbidden"]


@pytest.mark.parametrize(
    ("port", "taken", "expected"),
    [
        pytest.param(8000, {8001, 8002}, 8003, id="the-next-free-one"),
        pytest.param(8000, set(range(8001, 8200)), None, id="none-near"),
        pytest.param(65534, set(), 65535, id="the-last"),
        pytest.param(65535, set(), None, id="none-above"),
    ],
)
def test_another_port_is_the_next_that_is_free(port: int, taken: set[int], expected: int | None) -> None:
    def ask(_: str, asked: int) -> PortState:
        return PortState(state="listening" if asked in taken else "free")

    assert free_port_near("", port, ask) == expected
    seen = check_ports(command(port=8000), {}, lambda host, n: PortState(state="bound") if n == 8000 else ask(host, n))
    assert f"{free_port_near('', 8000, ask)} is free" in seen[0].remedy or 8199 in taken
