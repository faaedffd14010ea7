"""The error tree. An error knows what is wrong, where, what would be right, and the exit code it means."""

from __future__ import annotations

from typing import ClassVar


class KvadviseError(Exception):
    """Base of every error a user may meet; anything else is a bug in kvadvise (exit code 70)."""

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\nhint: {self.hint}" if self.hint else text


class InvalidInput(KvadviseError):
    """A file, flag or value is wrong; `where` names file, line and key, `hint` what would be right."""

    exit_code: ClassVar[int] = 2


class EngineRefuses(InvalidInput):
    """An argument that vLLM refuses whatever the memory: TP that does not divide, a dtype this GPU lacks.

    `code` is the stable finding code, `what` says it in one sentence, `source` where vLLM decides it.
    """

    def __init__(self, code: str, what: str, *, hint: str = "", source: str = "") -> None:
        super().__init__(what, hint=hint)
        self.code = code
        self.source = source


class NotUnderstood(KvadviseError):
    """The architecture, or one layer of it, is not known: no number is made up. `where` names the layer or key."""

    exit_code: ClassVar[int] = 3


class NoKvCache(NotUnderstood):
    """The model has no decoder KV cache (encoder-only, pooling without a cache): there is nothing to plan."""


class EngineUnavailable(KvadviseError):
    """The engine did not start or cannot be reached."""

    exit_code: ClassVar[int] = 69
