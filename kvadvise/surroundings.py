"""What a run finds around it: environment, current directory, home. Read once, handed in everywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})  # as huggingface_hub.constants reads its switches


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The mutable state outside that decides where model facts are looked for. Tests make their own."""

    env: Mapping[str, str]
    cwd: Path
    home: Path

    @property
    def is_offline(self) -> bool:
        """Whether the user has switched the hub off (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)."""
        return is_set(self.env.get("HF_HUB_OFFLINE") or self.env.get("TRANSFORMERS_OFFLINE"))

    @property
    def hub_cache(self) -> Path:
        """The hub cache directory, in huggingface_hub's own order (2.4, constants.py, HF_HUB_CACHE)."""
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            if value := self.env.get(name):
                return self.path(value)
        if value := self.env.get("HF_HOME"):
            return self.path(value) / "hub"
        if value := self.env.get("XDG_CACHE_HOME"):
            return self.path(value) / "huggingface" / "hub"
        return self.home / ".cache" / "huggingface" / "hub"

    @property
    def own_models(self) -> Path:
        """Where entries that the user added to the catalogue are kept."""
        base = self.env.get("XDG_CONFIG_HOME")
        return (self.path(base) if base else self.home / ".config") / "kvadvise" / "models"

    def path(self, text: str) -> Path:
        """A path as a person wrote it: `~` is home, a relative one starts in the current one."""
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return self.cwd / text


def is_set(value: str | None) -> bool:
    """Whether an environment variable switches something on."""
    return (value or "").upper() in _TRUE


def here() -> Surroundings:
    """The real surroundings of this process."""
    env = dict(os.environ)
    try:
        cwd = Path.cwd()
    except FileNotFoundError:  # the directory was deleted under the shell
        cwd = Path("/")
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no such user
        home = Path("/")
    return Surroundings(env=env, cwd=cwd, home=home)
