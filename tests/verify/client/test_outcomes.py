"""Every way a request can end, against a server that makes it end so: the right class, in words that say why."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from tests.verify.client.harness import closed, opened, play
from tests.verify.fake_vllm import FakeOptions, serving


def after_probe(fault: str, number: float = 0, **more: Any) -> FakeOptions:
    """The probe before the run is served well, then the fault begins."""
    return FakeOptions(step_s=0.005, faults={fault: number}, fault_after=1, **more)


@pytest.mark.parametrize(
    ("fault", "outcome", "says"),
    [
        ("stream_breaks", "truncated", "closed after 3 tokens"),
        ("dies", "connect_error", "refused|before any answer"),
        ("error_event", "stream_error", "error event after 3 tokens: Internal server error"),
        ("truncated", "truncated", "the stream ended after 3 tokens without finish_reason"),
        ("no_finish_reason", "truncated", "without finish_reason"),
        ("garbage_event", "stream_error", "no JSON"),
        ("wrong_prompt_tokens", "wrong_length", "24 prompt tokens were sent, 51 served"),
        ("wrong_completion_tokens", "wrong_length", "usage says 5 tokens, the stream held 8"),
        ("short_outputs", "wrong_length", r"8 tokens were asked for, 4 served \(finish_reason stop\)"),
        ("no_usage", "wrong_length", "no usage in the answer"),
        ("reject_503", "rejected", "HTTP 503: The engine is currently busy"),
        ("http_400", "http_4xx", "HTTP 400: this server refuses everything"),
        ("http_500", "http_5xx", "HTTP 500: Internal server error"),
        ("redirect", "http_4xx", "redirects to http://127.0.0.1:1/v1/completions"),
        ("wrong_model", "http_4xx", "The model `fake` does not exist"),
    ],
)  # fmt: skip
def test_a_fault_has_its_class(fault: str, outcome: str, says: str) -> None:
    with serving(after_probe(fault)) as fake:
        played = play(fake.url, closed(3, 1))
    if fault != "dies":
        assert played.outcomes == {outcome}
    row = next(row for row in played.rows if row.outcome == outcome)
    assert re.search(says, row.error or ""), row.error
    assert played.facts.faults == ()


@pytest.mark.parametrize("fault", ["odd_events", "split_bytes", "coalesced", "until_close", "huge_lines", "slow_drip"])
def test_what_is_legal_is_ok(fault: str) -> None:
    with serving(after_probe(fault, 3 if fault == "slow_drip" else 0)) as fake:
        played = play(fake.url, closed(4, 2))
    assert played.outcomes == {"ok"}
    assert {(row.streamed_tokens, row.served_output_tokens) for row in played.rows} == {(8, 8)}
    coalesced = played.facts.coalesced_fraction
    assert coalesced is not None
    assert (coalesced > 0.5) is (fault == "coalesced")


def test_a_line_without_end_is_bounded() -> None:
    with serving(after_probe("huge_lines", 20_000_000)) as fake:
        played = play(fake.url, closed(1, output=200))
    assert (played.row.outcome, played.row.error) == ("stream_error", "a line of more than 16 MiB")


@pytest.mark.parametrize("fault", ["stream_stalls", "hang"])
def test_a_stream_that_stops_times_out(fault: str) -> None:
    with serving(after_probe(fault)) as fake:
        played = play(fake.url, closed(2, 2), request_timeout_s=0.6)
    assert played.outcomes == {"client_timeout"}
    assert "no whole answer within 0.6 s" in (played.rows[0].error or "")
    assert played.rows[0].ended_s is not None
    assert played.rows[0].sent_s is not None
    assert 0.55 < played.rows[0].ended_s - played.rows[0].sent_s < 1.5


def test_a_server_that_closes_after_each_answer_is_met_with_new_connections() -> None:
    with serving(step_s=0.002, faults={"early_close": 0}) as fake:
        played = play(fake.url, closed(6, 2))
    assert played.outcomes == {"ok"}
    assert not played.probe.keeps_alive
    assert played.probe.notes == ("the server closes its connections after each answer",)
    assert played.facts.connections == 6


def test_nothing_is_sent_twice_when_a_kept_connection_turns_out_closed() -> None:
    with serving(step_s=0.002, faults={"early_close": 0}, fault_after=2) as fake:
        played = play(fake.url, closed(9, 3))
        received = len(fake.log) - 1
    assert received == sum(row.streamed_tokens > 0 for row in played.rows)
    lost = [row for row in played.rows if row.outcome != "ok"]
    assert {row.outcome for row in lost} <= {"connect_error"}
    assert all("before any answer (used" in (row.error or "") for row in lost)


def test_nobody_listens() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        played = play(f"http://127.0.0.1:{s.getsockname()[1]}", closed(3, 2))
    assert played.outcomes == {"connect_error"}
    assert played.probe.outcome == "connect_error"
    assert {row.error for row in played.rows} == {"connection refused"}
    assert {row.sent_s for row in played.rows} == {None}


def test_nobody_accepts() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        port = s.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # the queue is full now
            played = play(f"http://127.0.0.1:{port}", opened([0.0]), connect_timeout_s=0.5)
    assert (played.row.outcome, played.row.error) == ("connect_error", "no connection within 0.5 s")


def test_plain_http_where_tls_was_meant() -> None:
    with serving() as fake:
        played = play(fake.url.replace("http:", "https:"), closed(1))
    assert played.row.outcome == "connect_error"
    assert (played.row.error or "").startswith("TLS: ")


def test_what_was_expected_of_lengths_beyond_the_limit() -> None:
    with serving(step_s=0.001, max_model_len=256) as fake:
        too_long = play(fake.url, closed(1, prompt=300, expect="refusal")).row
        cut = play(fake.url, closed(1, prompt=200, output=100, expect="refusal_or_shortened")).row
        unexpected = play(fake.url, closed(1, prompt=300)).row
        fits = play(fake.url, closed(1, prompt=100, expect="refusal")).row
    assert (too_long.outcome, too_long.status) == ("refused", 400)
    assert "maximum context length is 256" in (too_long.error or "")
    assert (cut.outcome, cut.served_output_tokens, cut.finish_reason) == ("shortened", 56, "length")
    assert unexpected.outcome == "http_4xx"
    assert fits.outcome == "wrong_length"
    assert "a refusal was expected" in (fits.error or "")


@pytest.mark.parametrize(
    ("fault", "prompt", "output", "outcome"),
    [
        ("over_limit_400", 200, 100, "refused"),
        ("over_limit_500", 300, 8, "http_5xx"),
        ("cuts_prompts", 300, 8, "wrong_length"),
        ("reject_503", 300, 8, "rejected"),
        ("wrong_model", 300, 8, "http_4xx"),
    ],
)
def test_beyond_the_limit_of_other_servers(fault: str, prompt: int, output: int, outcome: str) -> None:
    with serving(after_probe(fault, max_model_len=256)) as fake:
        played = play(fake.url, closed(1, prompt=prompt, output=output, expect="refusal_or_shortened"))
    assert played.row.outcome == outcome, played.row.error
