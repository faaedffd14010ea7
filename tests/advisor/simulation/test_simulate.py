"""What a simulated load says, in cases small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.errors import InvalidInput, NotUnderstood
from advisor.simulation.request import Part, SimRequest
from advisor.simulation.results import Simulation
from advisor.simulation.rules import GroupRule, Rules, behaviour_of
from advisor.simulation.simulate import simulate
from advisor.versions import Version
from tests.advisor.simulation.cases import draw_case, requests_of, rules_of

FULL = (GroupRule(kind="full", block_size=16),)


def rules(**changed: Any) -> Rules:
    settings: dict[str, Any] = {
        "max_model_len": 1024,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "num_blocks": 101,
        "groups": FULL,
    }
    return Rules(**{**settings, **changed})


def request(prompt: int, output: int, step: int = 0, text: str = "own", **changed: Any) -> SimRequest:
    return SimRequest(arrival_step=step, prompt=(Part(text, prompt),), output_tokens=output, **changed)


def several(count: int, prompt: int, output: int, step: int = 0) -> list[SimRequest]:
    return [request(prompt, output, step, text=f"own {i}") for i in range(count)]


def fates(result: Simulation) -> list[str]:
    return [r.outcome for r in result.requests]


def test_one_request_takes_its_blocks_and_gives_them_back() -> None:
    result = simulate([request(100, 20)], rules())
    assert result.steps == 20
    assert result.tokens == 100 + 19
    assert result.peak_blocks == 8  # 119 tokens are computed; the last one generated is not
    (one,) = result.requests
    assert (one.first_step, one.first_token_step, one.finish_step) == (0, 0, 19)
    assert one.outcome == "finished"


def test_a_long_prompt_is_computed_in_chunks() -> None:
    result = simulate([request(900, 1)], rules(max_num_batched_tokens=400))
    assert [s.tokens for s in result.each_step()] == [400, 400, 100]
    assert result.requests[0].first_token_step == 2


def test_a_pool_too_small_for_all_preempts_and_serves_all_the_same() -> None:
    result = simulate(several(6, 200, 300), rules())
    assert result.preemptions > 0
    assert 0 < result.preempted_share <= 1
    assert fates(result) == ["finished"] * 6
    assert result.peak_blocks <= 100
    assert result.full_steps() > 0
    assert result.blocks_at(0.95) >= result.mean_blocks


def test_a_prompt_seen_before_is_found_but_for_its_last_block() -> None:
    result = simulate([request(160, 4), request(160, 4, step=10)], rules())
    assert [r.hit_tokens for r in result.requests] == [0, 144]
    assert result.prefix_hit_rate == pytest.approx(144 / 320)


def test_prompts_share_what_their_parts_have_in_common() -> None:
    first = SimRequest(arrival_step=0, prompt=(Part("system", 64), Part("a", 50)), output_tokens=2)
    second = SimRequest(arrival_step=9, prompt=(Part("system", 64), Part("b", 50)), output_tokens=2)
    shifted = SimRequest(arrival_step=20, prompt=(Part("x", 1), Part("system", 64)), output_tokens=2)
    assert [r.hit_tokens for r in simulate([first, second, shifted], rules()).requests] == [0, 64, 0]


def test_the_next_turn_finds_the_answer_of_the_one_before() -> None:
    first = SimRequest(arrival_step=0, prompt=(Part("a", 64),), output_tokens=33, output_text="answer")
    turn = SimRequest(arrival_step=60, prompt=(Part("a", 64), Part("answer", 33), Part("b", 20)), output_tokens=2)
    assert [r.hit_tokens for r in simulate([first, turn], rules()).requests] == [0, 96]


def test_without_a_cache_there_is_no_hit_rate() -> None:
    result = simulate([request(160, 4), request(160, 4, step=10)], rules(prefix_caching=False))
    assert result.prefix_hit_rate is None


def test_a_request_that_gives_up_leaves_its_blocks() -> None:
    result = simulate([request(160, 500, abort_step=30), request(16, 100, text="b")], rules())
    assert fates(result) == ["aborted", "finished"]
    assert [s.running for s in result.each_step()][29:31] == [2, 1]


def test_one_that_gives_up_while_it_waits_never_runs() -> None:
    result = simulate([request(160, 500), request(16, 1, text="b", abort_step=5, step=1)], rules(max_num_seqs=1))
    assert fates(result) == ["finished", "aborted"]
    assert result.requests[1].first_step is None


def test_a_full_queue_turns_requests_away() -> None:
    assert fates(simulate(several(5, 10, 50), rules(max_num_queued_reqs=3))) == ["finished"] * 3 + ["rejected"] * 2
    tokens = simulate([*several(4, 300, 5), request(10, 1, step=200)], rules(max_num_queued_tokens=600))
    assert fates(tokens) == ["finished", "finished", "rejected", "rejected", "finished"]


def test_what_can_never_be_admitted_is_said() -> None:
    result = simulate([request(900, 10)], rules(num_blocks=20))
    assert result.stuck
    assert fates(result) == ["unfinished"]


def test_an_end_can_be_set() -> None:
    result = simulate([request(16, 500), request(16, 5, step=90)], rules(), last_step=50)
    assert fates(result) == ["unfinished", "not_sent"]


def test_asynchronous_scheduling_holds_a_place_one_step_longer() -> None:
    waits = [
        simulate(several(2, 16, 10), rules(max_num_seqs=1, async_scheduling=asynchronous)).requests[1].first_step
        for asynchronous in (False, True)
    ]
    assert waits == [10, 11]


def test_a_queue_that_grows_has_a_slope() -> None:
    flood = [request(200, 100, step=3 * i, text=f"own {i}") for i in range(80)]
    trickle = [request(20, 10, step=40 * i, text=f"own {i}") for i in range(20)]
    growth = simulate(flood, rules()).queue_growth_per_step()
    calm = simulate(trickle, rules()).queue_growth_per_step()
    assert growth is not None
    assert growth > 0.1
    assert calm == pytest.approx(0, abs=1e-3)
    assert simulate([], rules()).queue_growth_per_step() is None


def test_a_long_stretch_is_one_row() -> None:
    result = simulate([request(16, 900)], rules(prefix_caching=False))
    assert result.steps == 900
    assert len(result.stretches) < 200


@pytest.mark.parametrize(
    "bad",
    [
        SimRequest(arrival_step=0, prompt=(), output_tokens=1),
        request(0, 5),
        request(1024, 5),
        request(10, 0),
        request(10, 5, step=-1),
    ],
)
def test_what_no_server_takes_is_refused(bad: SimRequest) -> None:
    with pytest.raises(InvalidInput, match="request 1"):
        simulate([request(10, 5), bad], rules())


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([GroupRule(kind="mamba", block_size=512), *FULL], "cache mode align"),
        ([GroupRule(kind="mamba", block_size=64, aligned=True), *FULL], "inside a Mamba block"),
        ([GroupRule(kind="chunked", block_size=16, span_tokens=64), GroupRule(kind="full", block_size=32)], "chunked"),
    ],
)
def test_a_schedule_that_is_not_modelled_is_refused(groups: list[GroupRule], why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        simulate([request(10, 5)], rules(groups=tuple(groups)))


@pytest.mark.parametrize(
    ("version", "differs"),
    [
        ((0, 32, 0), set()),
        ((0, 31, 0), {"last_state_before_end"}),
        ((0, 29, 0), {"last_state_before_end", "lone_prompt_unlimited", "retention_interval_tokens"}),
    ],
)
def test_versions_differ_where_their_sources_do(version: tuple[int, int, int], differs: set[str]) -> None:
    newest, other = msgspec.structs.asdict(behaviour_of(Version(0, 33))), behaviour_of(Version(*version))
    assert {key for key, value in msgspec.structs.asdict(other).items() if newest[key] != value} == differs


@pytest.mark.parametrize("version", [(0, 15), (0, 18), (0, 22), (0, 25), (0, 26), (0, 27), (0, 29), (0, 31)])
@pytest.mark.parametrize("kind", ["full", "five windows+full", "two sizes", "full+states", "full+state, no cache"])
def test_every_version_serves_all_in_equal_stretches(version: tuple[int, int], kind: str) -> None:
    case = draw_case(3, kind)
    requests = requests_of(case)
    changed = msgspec.structs.replace(rules_of(case), behaviour=behaviour_of(Version(*version)))
    shown: list[int] = []
    each = simulate(requests, changed, watch=lambda step, scheduler, tokens: shown.append(tokens))
    skipped = simulate(requests, changed)
    assert [s.tokens for s in skipped.each_step()] == shown
    assert skipped.requests == each.requests
    assert not skipped.stuck
    assert set(fates(skipped)) <= {"finished", "aborted"}


def test_states_cannot_be_found_again_before_they_were_kept() -> None:
    old = rules(groups=(GroupRule(kind="mamba", block_size=16, aligned=True),), behaviour=behaviour_of(Version(0, 14)))
    with pytest.raises(NotUnderstood, match=r"before vLLM 0\.15"):
        simulate([request(10, 5)], old)


def test_before_the_full_prompt_gate_more_prompts_were_begun_at_once() -> None:
    load = several(2, 900, 20)
    gated = simulate(load, rules())
    before = simulate(load, rules(behaviour=behaviour_of(Version(0, 18))))
    assert (gated.preemptions, gated.peak_running) == (0, 1)
    assert (before.preemptions, before.peak_running) == (1, 2)
