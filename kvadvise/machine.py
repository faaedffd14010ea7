"""This machine as files and NVML: the only things a GPU or the host's memory is read from.

A test makes its own machine from a directory tree and a made-up NVML module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read: `root` stands for `/`; `load_nvml` gives the module `pynvml`, None where it is not installed."""

    root: Path
    env: Mapping[str, str]
    load_nvml: Callable[[], Any | None]

    def text(self, path: str) -> str | None:
        """A file's text; None where it is absent or may not be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def integer(self, path: str) -> int | None:
        """A file that holds one whole number; None where it is absent or holds something else (`max`)."""
        text = self.text(path)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """What a folder holds, sorted; nothing where it is absent."""
        try:
            return sorted(entry.name for entry in (self.root / folder.lstrip("/")).iterdir())
        except (OSError, ValueError):
            return []

    @property
    def is_wsl(self) -> bool:
        """Whether this Linux runs inside Windows (WSL 1 or 2), whose kernels carry Microsoft's name."""
        return "microsoft" in (self.text("/proc/version") or "").lower()

    @property
    def has_nvidia_driver(self) -> bool:
        """Whether an NVIDIA driver offers a GPU: the kernel's own, or Windows' to WSL."""
        in_wsl = any(name.startswith("libnvidia-ml") for name in self.names("/usr/lib/wsl/lib"))
        return in_wsl or bool(self.names("/proc/driver/nvidia/gpus"))


def this_machine() -> Machine:
    """The machine kvadvise runs on."""
    return Machine(root=Path("/"), env=dict(os.environ), load_nvml=_pynvml)


def _pynvml() -> Any | None:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
