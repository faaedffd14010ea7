"""The KV cache under load: how full it was, what it threw out, whether it held the load at once and gave it back."""

from __future__ import annotations

from itertools import pairwise

from verify.judge.evidence import LOADED, Evidence, fig, finite, of
from verify.judge.kv_use import FULL_USAGE, KvTimeline, planned_peak_blocks
from verify.judge.reproduction import REACHED
from verify.judge.types import Check

_SEEN_ENOUGH = 0.5  # of all looks under load: fewer may have missed the peak
_NEARLY_FULL = 0.9
_MORE_ROOM = "lower max_num_seqs or the load, or give the cache more room (see the plan's alternatives)"


def preemptions(e: Evidence) -> Check:
    """Requests thrown out of a full pool and computed again. V1 logs none of them: the counter alone tells (P57)."""
    grew, most = e.growth("preemptions"), e.limits.preemptions_max
    count = grew.whole if grew.whole is not None else grew.seen
    served = len(e.run.rows)
    ask = e.ask(
        "preemptions", observed=count if grew.whole is not None or grew.seen else None, threshold=most, unit="count",
        n=served,
    )  # fmt: skip
    share = f" ({count / served:.1%} of {of(served, 'request')})" if served else ""
    if count > most:
        where = _where(e)
        return ask.fails(
            f"{fig(count)} preemptions{share}{f', {where}' if where else ''}; {fig(most)} are allowed",
            _MORE_ROOM,
        )
    if grew.whole is None:
        return ask.unknown(f"preemptions are not known: {grew.missing}")
    return ask.passes(f"{fig(count)} preemptions{share}" if count else "no request was preempted")


def preemptions_by_phase(e: Evidence) -> dict[str, float]:
    """Preemptions seen in each phase; what falls between two phases counts for the one before."""
    found: dict[str, float] = {}
    known = [(seen, value) for seen, m in e.readings if (value := finite(m.preemptions)) is not None]
    phase: str | None = None
    for (before, a), (after, b) in pairwise(known):
        phase = before.phase or phase or after.phase
        if b > a and phase is not None:
            found[phase] = found.get(phase, 0.0) + b - a
    return found


def _where(e: Evidence) -> str:
    parts = [f"{fig(count)} in {phase}" for phase, count in preemptions_by_phase(e).items()]
    return ", ".join(parts)


def kv_peak(e: Evidence, kv: KvTimeline) -> Check:
    """The pool's highest use, and how long it was full."""
    use, limits = kv.loaded, e.limits
    peak = use.peak_usage if use is not None else None
    ask = e.ask("kv_peak", observed=peak, threshold=limits.kv_peak_max, unit="share", n=use.samples if use else 0)
    if use is None or peak is None:
        return ask.unknown(f"{e.metric('kv_usage')} was not read under load")
    blocks = kv.blocks(peak)
    held = f" ({blocks:,} of {kv.usable_blocks:,} blocks)" if blocks is not None else ""
    reason = f"at most {peak:.1%} of the KV cache was in use{held}"
    if peak > limits.kv_peak_max:
        return ask.fails(f"{reason}, {limits.kv_peak_max:.1%} is allowed", _MORE_ROOM)
    if limits.kv_full_s_max is not None and use.seconds_full > limits.kv_full_s_max:
        full = f"it was full for {fig(use.seconds_full)} s, {fig(limits.kv_full_s_max)} s are allowed"
        return ask.fails(f"{reason}; {full}", _MORE_ROOM)
    seen = e.coverage("kv_usage", LOADED)
    if seen is not None and seen < _SEEN_ENOUGH:
        return ask.unknown(f"{reason}, but only {seen:.0%} of the looks under load could read it")
    full = f"; full for {fig(use.seconds_full)} s" if peak >= FULL_USAGE else ""
    return ask.passes(reason + full)


def kv_use_as_planned(e: Evidence, kv: KvTimeline) -> Check:
    """In the peak phase no more blocks were held than the plan reckons with: else it counts requests too small."""
    planned, mark, use = planned_peak_blocks(e), e.marks.get("peak"), kv.use("peak")
    blocks = kv.blocks(use.peak_usage) if use is not None else None
    ask = e.ask(
        "kv_use_as_planned", observed=blocks, threshold=planned, unit="blocks", phase="peak",
        n=use.samples if use is not None else 0,
    )  # fmt: skip
    if planned is None or mark is None:
        return ask.does_not_apply("the peak phase was not played" if mark is None else "the plan gives no number")
    if blocks is None:
        return ask.unknown("the blocks in use were not read in the peak phase")
    margin = mark.concurrency or 0  # each may be one token into its next block
    if blocks > planned + margin:
        return ask.fails(f"{blocks:,} blocks were held, the plan reckons with {planned:,}", "please report this plan")
    return ask.passes(f"{blocks:,} blocks were held, the plan reckons with {planned:,}")


def concurrency_served(e: Evidence, kv: KvTimeline) -> Check:
    """The pool held the peak's requests at once: none waited for room. That computing is slow is no fault of it."""
    mark = e.marks.get("peak")
    ask = e.ask("concurrency_served", unit="count", threshold=e.limits.concurrency, phase="peak")
    if mark is None:
        if e.run.ended != "finished":
            return ask.unknown("the run ended before the peak phase")
        return ask.does_not_apply("the peak phase was not played")
    running, waiting = e.values("running", ("peak",)), e.values("waiting", ("peak",))
    if not running or not waiting:
        return ask.unknown("running and waiting requests were not read in the peak phase")
    meant = min(mark.concurrency or 1, max(1, len(e.rows("peak"))))
    most = max(value for _, value in running) * e.engines
    ask = e.ask(
        "concurrency_served", observed=most, threshold=meant, unit="count", phase="peak", n=len(running)
    )  # fmt: skip
    queued = sum(1 for _, value in waiting if value > 0)
    if most >= REACHED * meant or queued < len(waiting) / 2:
        return ask.passes(f"{fig(most)} requests ran at once, {meant:,} were in flight")
    use = kv.use("peak")
    seqs = e.run.planned.max_num_seqs if e.run.planned is not None else None
    reason = f"never more than {fig(most)} of {of(meant, 'request')} ran at once, the others waited"
    if seqs is not None and most >= seqs * e.engines:
        return ask.fails(f"{reason}: max_num_seqs is {seqs}", "raise max_num_seqs as far as the plan allows")
    seen = e.coverage("kv_usage", ("peak",))
    if use is None or seen is None or seen < _SEEN_ENOUGH:
        return ask.unknown(f"{reason}, and the use of the KV cache is not known")
    if use.peak_usage >= _NEARLY_FULL or _lacks_room(e, kv, use.p95_usage):
        return ask.fails(f"{reason}: the KV cache was {use.peak_usage:.0%} full", _MORE_ROOM)
    return ask.passes(f"{reason}, though the KV cache had room ({use.peak_usage:.0%}): computing is the limit")


def _lacks_room(e: Evidence, kv: KvTimeline, usage: float) -> bool:
    """Whether one more request of the plan's size did not fit."""
    planned, held = e.run.planned, kv.blocks(usage)
    if planned is None or planned.blocks_per_request is None or held is None or kv.usable_blocks is None:
        return False
    return kv.usable_blocks - held < planned.blocks_per_request


def kv_released(e: Evidence, kv: KvTimeline) -> Check:
    """With the load gone every block is free again, those of clients that left too."""
    usage, most = kv.after_drain, e.limits.kv_after_drain_max
    floor = kv.idle_usage if kv.counts_null_block and kv.idle_usage is not None else 0.0
    ask = e.ask("kv_released", observed=usage, threshold=most, unit="share", phase="drain")
    if usage is None:
        if "drain" not in e.marks:
            return ask.unknown("the drain phase was not played")
        return ask.unknown(f"{e.metric('kv_usage')} was not read after the load")
    blocks = kv.blocks(usage)
    held = f" ({of(blocks, 'block')})" if blocks is not None else ""
    if usage > max(most, floor) + 1e-9:
        cancelled = ", after clients left" if e.rows("cancel") else ""
        return ask.fails(
            f"{usage:.2%} of the KV cache{held} was still in use after the load{cancelled}; {most:.2%} is allowed",
            "blocks that never come back end in a full cache: look for requests the engine still holds",
        )
    if e.was_cut_short and any(row.outcome == "abandoned" for row in e.run.rows):
        return ask.passes(f"{usage:.2%} of the KV cache was in use after the load was broken off")
    return ask.passes(f"{usage:.2%} of the KV cache was in use after the load")


def blocks_as_planned(e: Evidence) -> Check:
    """The engine's pool is the plan's: not smaller than its band, for that much was promised."""
    planned, actual = e.run.planned, e.num_blocks
    limit = e.limits.blocks_difference_fraction_max
    meant = planned.num_blocks if planned is not None else None
    ask = e.ask("blocks_as_planned", observed=actual, threshold=meant, unit="blocks")
    if planned is None or meant is None:
        return ask.does_not_apply("there is no plan" if planned is None else "the plan gives no number of blocks")
    if actual is None:
        return ask.unknown("the server does not say how many blocks it has (vllm:cache_config_info)")
    size, meant_size = e.block_size, planned.block_size
    if size is not None and meant_size is not None and size != meant_size:
        return ask.fails(
            f"blocks have {size} tokens, {meant_size} were planned ({actual:,} blocks, {meant:,} planned)",
            "plan with the server's block_size",
        )
    off = (actual - meant) / meant if meant else 0.0
    reason = f"the engine has {actual:,} blocks, {meant:,} were planned ({off:+.2%})"
    low = planned.num_blocks_low if planned.num_blocks_low is not None else meant
    if limit is not None and abs(off) > limit:
        return ask.fails(f"{reason}; {limit:.2%} is allowed", _REPLAN)
    if limit is None and actual < low:
        return ask.fails(f"{reason}, {low:,} at the least", _REPLAN)
    return ask.passes(reason)


_REPLAN = "the plan promises more than this engine has: compare its flags and free memory with the plan's, plan again"
