"""One request of a simulated load: when it comes, what its prompt is made of, and how much it generates."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from advisor.errors import InvalidInput


class Part(NamedTuple):
    """A stretch of a prompt. Two prompts share what their first parts have in common: same text, same place.

    `text` names the content, so parts of one text and different lengths agree on the shorter one.
    """

    text: str
    tokens: int


class SimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the scheduler sees it.

    `arrival_step` is the step before which it joins the queue, `output_tokens` how many it generates before it stops,
    `output_text` names what it generates (a later prompt may hold it as a part), a smaller `priority` is served first
    where the policy is priority, and `abort_step` is the step before which its client gives up (None: never).
    """

    arrival_step: int
    prompt: tuple[Part, ...]
    output_tokens: int
    output_text: str = ""
    priority: int = 0
    abort_step: int | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return sum(part.tokens for part in self.prompt)


def check_request(index: int, request: SimRequest, max_model_len: int) -> None:
    """Refuse what a server would refuse, so that no such request is ever simulated."""
    where = f"request {index}"
    if any(part.tokens <= 0 for part in request.prompt) or not request.prompt:
        raise InvalidInput("a prompt has at least one token in every part", where=where)
    if request.prompt_tokens >= max_model_len:
        raise InvalidInput(
            f"a prompt of {request.prompt_tokens} tokens leaves no room for an answer in {max_model_len}", where=where
        )
    if request.output_tokens <= 0 or request.arrival_step < 0:
        raise InvalidInput("output_tokens is at least 1 and arrival_step at least 0", where=where)
