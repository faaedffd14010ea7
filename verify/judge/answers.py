"""What came back: requests that completed, and what became of those that should have been refused."""

from __future__ import annotations

from typing import Any

from verify.judge.alive import failed_by_class
from verify.judge.evidence import FAILURES, Ask, Evidence, of
from verify.judge.intervals import requests_to_pass, share_bounds
from verify.judge.types import Check, Level
from verify.record.types import RequestRow


def requests_completed(e: Evidence) -> Check:
    """Requests that came back whole, of all that were sent and of those that could not be."""
    rows = [row for row in e.run.rows if row.phase != "over_limit" and row.outcome != "cancelled"]
    unsendable = e.run.unsendable_requests
    total = len(rows) + unsendable
    open_ = sum(1 for row in rows if row.outcome == "abandoned") if e.was_cut_short else 0
    failed = sum(1 for row in rows if row.outcome in FAILURES) - open_ + unsendable
    least, allowed = e.limits.success_rate_min, e.limits.failures_allowed
    bounds = share_bounds(total - failed, total) if total else None
    ask = e.ask(
        "requests_completed", observed=(total - failed) / total if total else None, unit="share", n=total,
        threshold=least if least is not None else f"at most {allowed} failed", interval=bounds,
    )  # fmt: skip
    if not total:
        return ask.unknown("no request was sent")
    reason = f"{of(failed, 'request')} of {total:,} failed{_classes(rows, unsendable)}"
    if allowed is not None and failed > allowed:
        return ask.fails(f"{reason}, {allowed:,} may", _remedy(e))
    if least is not None and bounds is not None:
        if bounds[1] < least or (least == 1.0 and failed):
            return ask.fails(f"{reason}: {bounds[0]:.2%} to {bounds[1]:.2%} complete, {least:.2%} must", _remedy(e))
        if bounds[0] < least < 1.0:
            more = requests_to_pass(least, failed)
            return ask.unknown(
                f"{reason}: {bounds[0]:.2%} to {bounds[1]:.2%} complete, which does not settle whether {least:.2%} do; "
                f"{more:,} requests without another failure would"
            )
    if open_ and (allowed is None or failed + open_ > allowed):
        return ask.unknown(f"{reason}, and {of(open_, 'request')} were open when the run ended")
    return ask.passes(f"{of(total - failed, 'request')} of {total:,} completed{_classes(rows, unsendable)}")


def _classes(rows: list[RequestRow], unsendable: int) -> str:
    counts = {name: sum(1 for row in rows if row.outcome == name) for name in FAILURES}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    if unsendable:
        parts.append(f"{unsendable:,} too long for this server")
    first = next((row for row in rows if row.outcome in FAILURES and row.error), None)
    text = f"; the first: {first.error}" if first is not None else ""
    return f" ({', '.join(parts)}{text})" if parts else ""


def _remedy(e: Evidence) -> str:
    counts = failed_by_class(e)
    if e.run.unsendable_requests:
        return "raise max_model_len to the longest prompt and answer together, or state shorter lengths"
    if counts["rejected"]:
        return "the server turns requests away at admission: fewer requests per second, or max_num_queued_reqs higher"
    if counts["client_timeout"]:
        return "the server is slower than the client waits: a lower rate, or a longer --timeout"
    return "requests.jsonl.gz has each with its error"


def over_limit_rejected(e: Evidence) -> Check:
    """A prompt that is too long gets a clear 4xx. A prompt that fits with a max_tokens that does not is shortened and
    answered 200 by vLLM from 0.20 on: what that counts for is the workload's choice.
    """
    rows = e.rows("over_limit")
    ask = _over_limit(e, rows, None)
    if not rows:
        if e.run.ended != "finished":
            return ask.unknown("the run ended before the over_limit phase")
        return ask.does_not_apply("the over_limit phase was not played")
    wrong = [row for row in rows if row.outcome not in ("refused", "shortened")]
    shortened = [row for row in rows if row.outcome == "shortened"]
    broken = [row for row in wrong if not (e.was_cut_short and row.outcome == "abandoned")]
    if broken:
        row = broken[0]
        what = row.error or (f"HTTP {row.status}" if row.status is not None else row.outcome)
        return ask.fails(
            f"of {of(len(rows), 'request')} over the limit {len(broken)} got no clear refusal: {row.outcome}, {what}",
            "a request the server cannot serve must get a 4xx that says so",
        )
    if wrong:
        return ask.unknown("requests over the limit were still open when the run ended")
    if not shortened:
        return ask.passes(f"{of(len(rows), 'request')} over the limit were refused, each with a 4xx")
    row = shortened[0]
    reason = (
        f"of {of(len(rows), 'request')} over the limit {len(shortened)} got a 200 and was cut: request {row.index} "
        f"asked for {row.output_tokens} tokens and got {row.served_output_tokens}, with finish_reason length; a caller "
        "sees a short answer and no error"
    )
    if e.limits.over_limit == "allow":
        return ask.passes(reason)
    level: Level = "error" if e.limits.over_limit == "error" else "warn"
    return _over_limit(e, rows, level).fails(reason, "check prompt + max_tokens <= max_model_len at the gateway")


def _over_limit(e: Evidence, rows: list[RequestRow], level: Level | None) -> Ask:
    refused = sum(1 for row in rows if row.outcome == "refused")
    return e.ask(
        "over_limit_rejected", observed=refused if rows else None, threshold=len(rows) or None, unit="count",
        n=len(rows), phase="over_limit", level=level,
    )  # fmt: skip


def report(e: Evidence) -> dict[str, Any]:
    """The verdict's `requests`."""
    rows = e.run.rows
    by_phase = {
        name: {"sent": len(listed), "succeeded": sum(1 for row in listed if row.outcome == "ok")}
        for name, listed in e.rows_by_phase.items()
    }
    return {
        "sent": len(rows),
        "succeeded": sum(1 for row in rows if row.outcome == "ok"),
        **failed_by_class(e),
        "cancelled": sum(1 for row in rows if row.outcome == "cancelled"),
        "refused": sum(1 for row in rows if row.outcome == "refused"),
        "shortened": sum(1 for row in rows if row.outcome == "shortened"),
        "unsendable": e.run.unsendable_requests,
        "dropped_from_trace": dict(e.run.dropped),
        "retries": sum(row.retries for row in rows),
        "phases": by_phase,
    }
