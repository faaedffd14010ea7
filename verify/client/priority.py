"""A client process wants little of the processor, but at once: what the kernel lets it ask for.

Beside a busy engine on the same machine a process of usual priority waits tens of milliseconds for its turn, and its
stamps with it. Nothing here is needed: what is not allowed is left as it is. Sources: sched(7) with its autogroups,
sched_setattr(2); a slice of its own is heeded since Linux 6.12.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path

_NICE = -10  # needs CAP_SYS_NICE
_SLICE_NS = 100_000  # the shortest there is: who asks for little is served sooner; needs nothing
_SYSCALLS = {"x86_64": 314, "aarch64": 274}


def ask_for_promptness() -> None:
    """A higher priority and the shortest slice, as far as they are granted."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    if os.getsid(0) == os.getpid():  # where sessions share the processor evenly, this one's share; nobody else's
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(_NICE))
    number = _SYSCALLS.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            _set_slice(number)


def _set_slice(number: int) -> None:
    size, policy, flags = 56, 0, 0  # SCHED_OTHER
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQII", size, policy, flags, nice, 0, _SLICE_NS, 0, 0, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
