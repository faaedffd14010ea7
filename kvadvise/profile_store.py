"""Where profiles live: the bundled ones in the package, the user's own in the configuration directory.

A profile is a workload file, with or without a saved plan in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import msgspec

from advisor.errors import InvalidInput
from kvadvise.surroundings import Surroundings, here

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".yaml"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One profile by name. A user's profile hides a bundled one of the same name."""

    name: str
    path: Path
    origin: Literal["bundled", "user"]


def bundled_dir() -> Path:
    """The workloads that come with kvadvise."""
    import profiles

    return Path(profiles.__file__).parent / "workloads"


def user_dir(around: Surroundings | None = None) -> Path:
    """`kvadvise/profiles` in the user's configuration directory, beside the models of one's own."""
    return (around or here()).own_models.parent / "profiles"


def list_profiles() -> list[Profile]:
    """Every profile by name."""
    found: dict[str, Profile] = {}
    places: tuple[tuple[Path, Literal["bundled", "user"]], ...] = (
        (bundled_dir(), "bundled"),
        (user_dir(), "user"),
    )
    for directory, origin in places:
        if not directory.is_dir():
            continue
        for path in directory.glob(f"*{_SUFFIX}"):
            found[path.stem] = Profile(name=path.stem, path=path, origin=origin)
    return [found[name] for name in sorted(found)]


def find_profile(name: str) -> Profile | None:
    """The profile of that name, or None."""
    if not _NAME.fullmatch(name):
        return None
    places: tuple[tuple[Path, Literal["bundled", "user"]], ...] = (
        (user_dir(), "user"),
        (bundled_dir(), "bundled"),
    )
    for directory, origin in places:
        path = directory / f"{name}{_SUFFIX}"
        if path.is_file():
            return Profile(name=name, path=path, origin=origin)
    return None


def nearest_names(name: str) -> list[str]:
    """Up to three profile names that look like `name`."""
    from difflib import get_close_matches

    return get_close_matches(name, [profile.name for profile in list_profiles()], n=3)


def save_profile(name: str, data: bytes, *, force: bool = False) -> Path:
    """Write a profile into the user's directory, whole or not at all.

    Raises InvalidInput for a name that is no file name, a profile that exists (without `force`), or a
    directory that cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a profile name",
            where="--save",
            hint="letters, digits, dot, dash and underscore, at most 64",
        )
    path = user_dir() / f"{name}{_SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, data, replace=force)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists", where="--save", hint="--force replaces it") from error
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", where="--save") from error
    return path


def _write_atomically(path: Path, data: bytes, *, replace: bool) -> None:
    """A reader sees the old file or the new one. Without `replace` an existing file stays and
    FileExistsError rises.
    """
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(temporary).replace(path)
        else:
            os.link(temporary, path)  # fails where the name is taken, unlike a rename
    finally:
        Path(temporary).unlink(missing_ok=True)
