"""What can go wrong between here and the hub, each with one sentence and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import InvalidInput

_HERE = "or plan from a directory that holds its config.json: `model: {path: DIR}`"


class Unreachable(InvalidInput):
    """The hub could not be asked; nothing is known about the model."""


class MissingModel(InvalidInput):
    """The hub has no such model, or does not show it to this token."""


def explain_status(status: int, headers: Mapping[str, Any], model_id: str, name: str = "") -> InvalidInput:
    """The error for an HTTP status of the hub, with the hub's own code (X-Error-Code) where it sends one."""
    code = str(headers.get("X-Error-Code", ""))
    where = f"{model_id}/{name}" if name else model_id
    if code == "GatedRepo" or (status == 403 and not code):
        return InvalidInput(
            "is gated on the hub: this token may not read it",
            where=where,
            hint=f"accept its conditions on the model's page and set HF_TOKEN, {_HERE}",
        )
    if code == "RevisionNotFound":
        return MissingModel("has no such revision on the hub", where=where, hint="leave `revision` out or correct it")
    if code == "EntryNotFound" or (status == 404 and name):
        return InvalidInput("is listed by the hub but cannot be read there", where=where, hint="try again")
    if status == 401 and "invalid" in str(headers.get("X-Error-Message", "")).lower():
        return InvalidInput("the hub refuses HF_TOKEN", where=where, hint="set a valid token or unset it")
    if status == 401:
        return MissingModel(
            "is not on the hub, or is private or gated",
            where=where,
            hint=f"check the name; for a private or gated model set HF_TOKEN, {_HERE}",
        )
    if status == 403:
        return InvalidInput(f"the hub forbids it ({code})", where=where, hint=f"check HF_TOKEN, {_HERE}")
    if status == 404:
        return MissingModel("is not on the hub", where=where, hint="check the name")
    if status == 429:
        return Unreachable("the hub asks for a pause: too many requests", where=where, hint="set HF_TOKEN or wait")
    return Unreachable(f"the hub answers with status {status}", where=where, hint=f"try again, {_HERE}")


def explain_transport(error: BaseException, where: str) -> InvalidInput:
    """The error for a hub that does not answer at all."""
    kind = type(error).__name__
    if kind == "OfflineModeIsEnabled":
        return offline(where)
    if "Timeout" in kind or isinstance(error, TimeoutError):
        return Unreachable(
            "the hub does not answer in time",
            where=where,
            hint=f"try again, set HF_HUB_DOWNLOAD_TIMEOUT to more seconds, {_HERE}",
        )
    text = " ".join(str(error).split())[:200] or kind
    return Unreachable(
        f"the hub cannot be reached: {text}",
        where=where,
        hint=f"check the network, the proxy and HF_ENDPOINT, {_HERE}",
    )


def offline(where: str) -> InvalidInput:
    """The error for a model that only the hub could tell of, with the hub switched off."""
    return Unreachable(
        "is in no directory, hub cache or catalogue here, and the hub is switched off",
        where=where,
        hint=f"unset HF_HUB_OFFLINE, {_HERE}",
    )
