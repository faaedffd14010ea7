# ruff: noqa: PTH115, PTH123, PTH208
"""Is a port ours to bind, and who has it: asked of the kernel the way vLLM will ask.

vLLM binds with SO_REUSEADDR before it loads the model and listens only afterwards (0.32 entrypoints/launchers/
launcher.py, setup_server). So a port that nobody listens on may belong to a server that is still loading: two such
binds succeed side by side, and the one that listens second fails after minutes. A bind without SO_REUSEADDR sees
the other; it also sees connections in TIME_WAIT, which do not matter, and those are in /proc/net/tcp.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Literal

import msgspec

from launch.process_tree import PROC, all_processes, command_line

_LISTEN = "0A"


class PortState(msgspec.Struct, frozen=True, kw_only=True):
    """`bound`: taken by a program that does not listen yet. `holders`: who has it, where that can be seen."""

    state: Literal["free", "listening", "bound", "forbidden", "no_address"]
    holders: tuple[tuple[int, str], ...] = ()

    @property
    def held_by(self) -> str:
        """`pid 12 (python -m x)`, or words for a program that cannot be seen."""
        return ", ".join(f"pid {pid} ({name})" for pid, name in self.holders) or "another program"


def ask_port(host: str, port: int) -> PortState:
    """Whether `host` (empty: every IPv4 address) and `port` can be bound and listened on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if _can_listen(family, host, port, reuse=False):
            return PortState(state="free")
        if not _can_listen(family, host, port, reuse=True):
            return PortState(state="listening", holders=holders_of(port))
    except PermissionError:
        return PortState(state="forbidden")
    except (OSError, UnicodeError):
        return PortState(state="no_address")
    if _has_connections(port):
        return PortState(state="free")
    return PortState(state="bound", holders=holders_of(port))


def free_port_near(
    host: str, port: int, ask: Callable[[str, int], PortState] = ask_port, *, tries: int = 100
) -> int | None:
    """The first port above this one that can be bound and listened on now; None where none of them can."""
    above = range(port + 1, min(port + 1 + tries, 65536))
    return next((other for other in above if ask(host, other).state == "free"), None)


def holders_of(port: int) -> tuple[tuple[int, str], ...]:
    """(pid, command line) of the processes that listen on this TCP port, as far as they can be seen."""
    inodes = {inode for state, inode in _sockets(port) if state == _LISTEN}
    return tuple((pid, command_line(pid)[:120]) for pid in _owners(inodes))


def listener_pids(port: int) -> frozenset[int]:
    """The processes that listen on this port; empty where that cannot be seen."""
    return frozenset(pid for pid, _ in holders_of(port))


def _can_listen(family: socket.AddressFamily, host: str, port: int, *, reuse: bool) -> bool:
    """False where the address is in use; other errors rise."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if reuse:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def _has_connections(port: int) -> bool:
    """Whether connections of an earlier server are left over (TIME_WAIT and the like), which hinder nobody."""
    return any(state != _LISTEN for state, _ in _sockets(port))


def _sockets(port: int) -> list[tuple[str, int]]:
    """(state, inode) of the TCP sockets with this local port."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{PROC}/net/{table}", encoding="ascii", errors="replace") as file:
                rows = file.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if len(fields) > 9 and int(fields[1].rpartition(":")[2], 16) == port:
                found.append((fields[3], int(fields[9])))
    return found


def _owners(inodes: set[int]) -> list[int]:
    """The processes that have one of these sockets open, as far as their files may be looked at."""
    wanted = {f"socket:[{inode}]" for inode in inodes if inode}
    return [process.pid for process in all_processes() if wanted & _open_files(process.pid)] if wanted else []


def _open_files(pid: int) -> set[str]:
    folder = f"{PROC}/{pid}/fd"
    links: set[str] = set()
    try:
        names = os.listdir(folder)
    except OSError:  # gone, or another user's
        return links
    for name in names:
        with contextlib.suppress(OSError):
            links.add(os.readlink(f"{folder}/{name}"))
    return links
