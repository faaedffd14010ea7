"""What a server takes, found out by one or two short requests before anything is measured.

Servers that know no `return_token_ids` ignore it (then a running count is asked for) or refuse it with 400; a refused
field is left out and the rest tried again. A server that closes its connections unasked is met with a new one each
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

import msgspec

from verify.client.bodies import Fields, PromptIds
from verify.client.messages import Asked, Prepare, Setup
from verify.client.sender import Sender
from verify.client.types import Probe, Target
from verify.load.types import PlannedRequest
from verify.record.types import RequestRow

_TOKENS = 4
_CLOSES_WITHIN_S = 0.05

NewSender = Callable[[Target, Setup, PromptIds], Sender]


async def ask(new_sender: NewSender, setup: Setup, timeout_s: float) -> Asked:
    """A short request, again with fewer fields while the server refuses them."""
    fields, notes = Fields(), []
    target = msgspec.structs.replace(
        setup.target, salt=f"{setup.target.salt}-probe"[-1024:], request_timeout_s=timeout_s
    )
    row, sees_ids, keeps_alive = await _once(new_sender, target, setup, fields)
    if row.status in (400, 422) and _names(row, "return_token_ids"):
        notes.append("the server refuses return_token_ids")
        fields = msgspec.structs.replace(fields, return_token_ids=False, continuous_usage=True)
        row, sees_ids, keeps_alive = await _once(new_sender, target, setup, fields)
    if row.status in (400, 422) and _names(row, "cache_salt"):
        notes.append("the server refuses cache_salt: earlier runs' prefixes may be served from its cache")
        fields = msgspec.structs.replace(fields, cache_salt=False)
        row, sees_ids, keeps_alive = await _once(new_sender, target, setup, fields)
    if fields.return_token_ids and row.outcome == "ok" and not sees_ids:
        notes.append("the server ignores return_token_ids")
        fields = msgspec.structs.replace(fields, return_token_ids=False, continuous_usage=True)
        row, sees_ids, keeps_alive = await _once(new_sender, target, setup, fields)
    if not keeps_alive:
        notes.append("the server closes its connections after each answer")
    counts = "none" if not sees_ids else "running_usage" if fields.continuous_usage else "ids"
    probe = Probe(
        outcome=row.outcome,
        counts_by=counts,
        status=row.status,
        error=row.error,
        keeps_alive=keeps_alive,
        notes=tuple(notes),
    )
    return Asked(probe, fields, keeps_alive)


async def _once(new_sender: NewSender, target: Target, setup: Setup, fields: Fields) -> tuple[RequestRow, bool, bool]:
    """Its row; whether each event said how many tokens it held; whether the connection stayed open."""
    rows: list[RequestRow] = []
    first = next(i for i in range(target.vocab_size) if i not in target.avoid_ids)
    sender = new_sender(target, setup, lambda _request: [first] * _TOKENS)
    sender.on_rows = rows.extend
    request = PlannedRequest(index=0, phase="baseline", prompt_tokens=_TOKENS, output_tokens=_TOKENS, parts=())
    try:
        sender.prepare(
            Prepare(name="baseline", mode="closed", requests=(request,), places=1, fields=fields, keeps_alive=True)
        )
        now = perf_counter()
        await sender.play(began=now, zero=now)
        await asyncio.sleep(_CLOSES_WITHIN_S)
        stays = sender.connections.spare > 0
        return rows[0], sender.counts_tokens, stays or rows[0].outcome != "ok"
    finally:
        sender.connections.close()


def _names(row: RequestRow, field: str) -> bool:
    return field in (row.error or "")
