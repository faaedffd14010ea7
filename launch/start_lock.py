"""One start at a time per GPU: two engines that load together each take the other's memory for their own use.

A lock is a file that is flock-ed, so a holder that dies holds nothing. It is removed by whoever holds it; a lock is
only good while its file is still the one at that path.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from advisor.errors import EngineUnavailable
from launch.process_tree import command_line, read_process
from launch.user_dirs import runtime_dir

CPU = "cpu"
_POLL_S = 0.2


@contextlib.contextmanager
def start_lock(
    gpus: Iterable[str],
    env: Mapping[str, str],
    *,
    wait_s: float = 3600.0,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold the start lock of these GPUs (UUIDs, or CPU); `on_wait` is told once who has it.

    Raises EngineUnavailable where another start holds one of them for more than `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    with contextlib.ExitStack() as held:
        for gpu in sorted(set(gpus)):  # in one order everywhere, so that no two wait for each other
            held.enter_context(_hold(lock_path(gpu, env), gpu, deadline, on_wait))
        yield


def is_held(gpu: str, env: Mapping[str, str]) -> bool:
    """Whether a start holds this GPU's lock now."""
    try:
        handle = os.open(lock_path(gpu, env), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def lock_path(gpu: str, env: Mapping[str, str]) -> Path:
    """The lock file of one GPU."""
    return runtime_dir(env) / f"kvadvise-start-{re.sub(r'[^A-Za-z0-9._-]', '_', gpu)}.lock"


@contextlib.contextmanager
def _hold(path: Path, gpu: str, deadline: float, on_wait: Callable[[str], None] | None) -> Iterator[None]:
    handle = None
    has_told = False
    while handle is None:
        handle = _take(path)
        if handle is not None:
            break
        if not has_told and on_wait is not None:
            on_wait(f"waiting for another start on {_named(gpu)} ({_holder(path)})")
            has_told = True
        if time.monotonic() >= deadline:
            raise EngineUnavailable(
                f"another start holds {_named(gpu)}: {_holder(path)}", hint="wait until it is ready, or stop it"
            )
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # another user's file in a shared directory stays
            path.unlink()
        os.close(handle)


def _take(path: Path) -> int | None:
    """The open, locked file; None where another process has it."""
    try:
        handle = _open(path)
    except OSError as error:
        raise EngineUnavailable(
            f"the start lock {path} cannot be opened: {error.strerror}",
            hint="set XDG_RUNTIME_DIR to a directory of yours",
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, handle):
            raise BlockingIOError  # its last holder has removed it meanwhile
    except OSError:
        os.close(handle)
        return None
    with contextlib.suppress(OSError):  # opened for reading only: another user's
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _open(path: Path) -> int:
    """Another user's lock in a shared directory may be opened for reading only, which flock accepts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:
        return os.open(path, flags | os.O_RDONLY)


def _is_at(path: Path, handle: int) -> bool:
    try:
        there, here = path.stat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _holder(path: Path) -> str:
    try:
        pid = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return "its holder cannot be seen"
    return f"pid {pid}, {command_line(pid)[:80]}" if read_process(pid) is not None else f"pid {pid}"


def _named(gpu: str) -> str:
    return "the CPU" if gpu == CPU else f"GPU {gpu}"
