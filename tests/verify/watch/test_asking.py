"""What is asked of a server before the load, and what stands against it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from advisor.errors import EngineUnavailable, InvalidInput
from tests.verify.scripted import ScriptedServer
from verify.record.types import Served
from verify.watch.asking import open_client, served_by


def ask(server: ScriptedServer, wanted: str | None = None) -> Served:
    async def run() -> Served:
        return (await served_by(server.client(), "http://s", wanted_model=wanted))[0]

    return asyncio.run(run())


def test_a_server_says_what_it_is() -> None:
    served = ask(ScriptedServer(), "m")
    assert served.model == "m"
    assert served.max_model_len == 4096
    assert served.vllm_version == "0.32.0"
    assert (served.num_blocks, served.block_size, served.engines) == (100, 16, 1)


def test_a_model_is_known_by_the_name_of_its_root_too() -> None:
    assert ask(ScriptedServer(), "org/m").model == "m"


def test_one_model_needs_no_name() -> None:
    assert ask(ScriptedServer()).model == "m"


def test_another_model_is_never_judged_in_its_place() -> None:
    with pytest.raises(EngineUnavailable, match="serves m, not other"):
        ask(ScriptedServer(), "other")


def test_of_several_models_one_is_named() -> None:
    server = ScriptedServer()
    server.models = {"data": [{"id": "a"}, {"id": "b"}]}
    with pytest.raises(EngineUnavailable, match="several models: a, b"):
        ask(server)
    assert ask(server, "b").max_model_len is None


@pytest.mark.parametrize(
    ("status", "document", "said"),
    [
        (401, {"error": "no"}, "refuses the key"),
        (403, {}, "refuses the key"),
        (404, {"detail": "Not Found"}, "no list of models"),
        (200, {"data": []}, "no list of models"),
        (200, ["x"], "no list of models"),
        (200, {"data": [{"name": "x"}]}, "no list of models"),
        (307, {}, "redirects to http://elsewhere"),
    ],
)
def test_what_is_no_server_of_ours_is_said(status: int, document: object, said: str) -> None:
    server = ScriptedServer()
    server.models_status, server.models = status, document
    server.models_headers = {"location": "http://elsewhere"}
    with pytest.raises(EngineUnavailable, match=said):
        ask(server)


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError])
def test_silence_is_said(error: type[httpx.TransportError]) -> None:
    server = ScriptedServer()
    server.error = error
    with pytest.raises(EngineUnavailable, match="does not answer"):
        ask(server)


def test_a_server_without_metrics_is_still_a_server() -> None:
    server = ScriptedServer()
    server.metrics_status = 404
    served = ask(server)
    assert served.model == "m"
    assert (served.num_blocks, served.block_size, served.engines) == (None, None, None)


@pytest.mark.parametrize("length", [True, "4096", -1, None, float("nan")])
def test_a_length_that_is_none_is_unknown(length: object) -> None:
    server = ScriptedServer()
    server.models = {"data": [{"id": "m", "max_model_len": length if length == length else None}]}
    assert ask(server).max_model_len is None


def test_certificates_that_cannot_be_read_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"/no/such\.pem"):
        open_client("https://s", api_key=None, ca_file="/no/such.pem", version="1")


def test_the_key_goes_into_a_header_and_nowhere_else() -> None:
    client = open_client("http://s", api_key="secret", ca_file=None, version="1")
    assert client.headers["authorization"] == "Bearer secret"
    assert client.headers["user-agent"] == "kvadvise/1 (verify)"
    assert "secret" not in repr(client)
    assert not client.trust_env
    assert not client.follow_redirects
