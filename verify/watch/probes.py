"""What can be seen of an engine beside its metrics, handed in by whoever started it; None is what nobody can see."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from verify.record.types import GpuMemory, LogWatch


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """Questions about the engine's machine. Each may be asked once a second and answers at once.

    `resident_bytes` is the physical memory of the engine's processes, `gpus` the memory of the GPUs it runs on (None
    where a driver did not answer), `engine_exit` how its process ended (None while it runs), `log` what its log has
    said so far; it is asked once, at the end.
    """

    resident_bytes: Callable[[], int] | None = None
    gpus: Callable[[], tuple[GpuMemory, ...] | None] | None = None
    engine_exit: Callable[[], str | None] | None = None
    log: Callable[[], LogWatch] | None = None

    @property
    def is_local(self) -> bool:
        """Whether the engine's processes run on this machine and are watched."""
        return self.resident_bytes is not None or self.engine_exit is not None


NOTHING = Probes()
