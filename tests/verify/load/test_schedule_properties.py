"""What holds for the schedule of any load and any server."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.workload import Arrivals, Lengths, Load, Slo
from advisor.workload_yaml import read_workload
from verify.load.describe import describe
from verify.load.schedule import PHASES, make_schedule
from verify.load.types import Limits, Pace

FILE = read_workload(
    "model: a/b\ngpu: L40S\nworkload: {prompt_tokens: {p95: 1}, output_tokens: {p95: 1}, concurrency: 1}\n", "w.yaml"
)
NAMES = ("p50", "p90", "p95", "p99", "max")


@st.composite
def lengths(draw: st.DrawFn) -> Lengths:
    names = draw(st.sets(st.sampled_from(NAMES))) | {draw(st.sampled_from(["p95", "max"]))}
    values = sorted(draw(st.lists(st.integers(1, 20_000), min_size=len(names), max_size=len(names))))
    return Lengths(**dict(zip(sorted(names, key=NAMES.index), values, strict=True)))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    prompt = draw(lengths())
    shortest = min(value for value in msgspec.structs.asdict(prompt).values() if value is not None)
    rate = draw(st.one_of(st.none(), st.floats(0.01, 500)))
    arrivals = draw(st.sampled_from([None, Arrivals(process="constant"), Arrivals(process="gamma", cv=4.0),
                                     Arrivals(process="piecewise", rates=((0, 0), (9, 3), (20, 1)))]))  # fmt: skip
    return Load(
        prompt_tokens=prompt, output_tokens=draw(lengths()), concurrency=draw(st.integers(1, 300)),
        requests_per_s=rate, arrivals=arrivals if rate is not None else None,
        shared_prefix_tokens=draw(st.integers(0, shortest)), chat_template_tokens=draw(st.integers(0, 100)),
    )  # fmt: skip


LIMITS = st.builds(
    Limits, max_model_len=st.integers(1, 30_000), max_num_seqs=st.sampled_from([None, 4]),
    capacity_tokens=st.one_of(st.none(), st.integers(16, 10**7)), block_size=st.sampled_from([None, 16, 128]),
)  # fmt: skip
OPTIONS = st.fixed_dictionaries(
    {
        "minutes": st.one_of(st.none(), st.floats(0.1, 60)),
        "pace": st.sampled_from([None, Pace(prefill_tokens_per_s=1000, tpot_s=0.02)]),
        "phases": st.one_of(st.none(), st.lists(st.sampled_from(PHASES))),
    }
)
SLOS = st.sampled_from([Slo(), Slo(ttft_p95_s=1.0, tpot_p99_s=0.05), Slo(e2e_p95_s=30.0)])


@settings(deadline=None, max_examples=80)
@given(loads(), LIMITS, SLOS, st.integers(0, 2**63), OPTIONS)
def test_a_schedule_is_sound(load: Load, limits: Limits, slo: Slo, seed: int, options: dict[str, Any]) -> None:
    file = msgspec.structs.replace(FILE, workload=load, slo=slo)
    made = make_schedule(file, limits, seed, **options)
    assert make_schedule(file, limits, seed, **options).sha256 == made.sha256
    requests = [request for phase in made.phases for request in phase.requests]
    assert [request.index for request in requests] == list(range(len(requests)))
    for request in requests:
        assert sum(part.tokens for part in request.parts) == request.prompt_tokens >= 1
        assert min(part.tokens for part in request.parts) >= 1 <= request.output_tokens
        fits = request.prompt_tokens + request.output_tokens <= limits.max_model_len
        assert fits == (request.expect in ("answer", "cancel"))
    for phase in made.phases:
        assert phase.mode != "closed" or 1 <= (phase.concurrency or 0) <= len(phase.requests)
        due = [request.scheduled_s for request in phase.requests]
        assert all((at is not None) == (phase.mode == "open") for at in due)
        assert phase.mode != "open" or due == sorted(due, key=lambda at: at or 0.0)
    assert made.declared_hit_rate is None or 0 <= made.declared_hit_rate < 1
    assert all(group.count > 0 for group in made.unsendable)
    assert all(line.isprintable() for line in describe(made))
    assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made
