"""One verification from the first question to the last row: what a command calls, and what survives an interrupt."""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from advisor.errors import EngineUnavailable, InvalidInput, KvadviseError
from advisor.workload import WorkloadFile
from verify.client.pool import Client
from verify.client.types import Target
from verify.load.schedule import make_schedule
from verify.load.trace_file import read_trace
from verify.load.types import Limits, Phase, PhaseName, Schedule
from verify.record.types import Planned, Run, Served, Snapshot
from verify.running.player import Player, Record
from verify.vocabulary import Vocabulary
from verify.watch.asking import open_client, served_by
from verify.watch.probes import NOTHING, Probes
from verify.watch.watcher import HANG_AFTER_S, Watcher

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to verify. `minutes` bounds the whole run, `phases` says which are played (None: all that apply).

    `model` is the name the server has the model under, `api_key` goes to the server and nowhere else.
    """

    workload: WorkloadFile
    vocabulary: Vocabulary
    planned: Planned | None
    url: str
    model: str | None
    kvadvise_version: str
    base_dir: Path
    seed: int = 0
    phases: tuple[PhaseName, ...] | None = None
    minutes: float | None = None
    processes: int = 1
    api_key: str | None = None
    ca_file: str | None = None
    request_timeout_s: float = 600.0
    hang_after_s: float = HANG_AFTER_S


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to tell while it goes on."""

    on_schedule: Callable[[Schedule, Served], None] | None = None
    on_phase: Callable[[Phase], None] | None = None
    on_snapshot: Callable[[Snapshot, Record], None] | None = None


class Session:
    """A verification. `run` may be interrupted at any moment; `recorded` gives what there is, always."""

    def __init__(self, order: Order, probes: Probes = NOTHING, hooks: Hooks | None = None) -> None:
        self.order = order
        self.schedule: Schedule | None = None
        self.served: Served | None = None
        self.probes = probes
        self._hooks = hooks or Hooks()
        self._player: Player | None = None
        self._watcher: Watcher | None = None
        self._started_at = datetime.datetime.now().astimezone()
        self._failure: str | None = None

    def run(self) -> None:
        """Ask, schedule, play. Raises EngineUnavailable where nobody answers, InvalidInput for a load that cannot be
        made, KeyboardInterrupt where a signal came before the load or twice.
        """
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except KvadviseError:
            raise
        except Exception as error:
            self._failure = " ".join(f"{type(error).__name__}: {error}".split())
            raise

    def recorded(self) -> Run:
        """All that has been seen so far."""
        record = self._player.record if self._player is not None else Record()
        ended, text = record.ended, record.ending_text
        if self._failure is not None:
            ended, text = "harness_error", self._failure
        schedule = self.schedule
        return Run(
            kvadvise_version=self.order.kvadvise_version,
            started_at=self._started_at.isoformat(timespec="seconds"),
            schedule_sha256=schedule.sha256 if schedule is not None else "",
            seed=self.order.seed,
            workload_name=self.order.workload.name,
            planned=self.order.planned,
            served=self.served or Served(url=self.order.url),
            rows=tuple(sorted(record.rows, key=lambda row: row.index)),
            snapshots=tuple(self._watcher.snapshots) if self._watcher is not None else (),
            marks=tuple(record.marks),
            client=tuple(record.client),
            log=self.probes.log() if self.probes.log is not None else None,
            engine_exit=self.probes.engine_exit() if self.probes.engine_exit is not None else None,
            is_local=self.probes.is_local,
            ended=ended,
            ending_text=text,
            declared_hit_rate=schedule.declared_hit_rate if schedule is not None else None,
            unsendable_requests=sum(group.count for group in schedule.unsendable) if schedule is not None else 0,
            dropped=dict(schedule.dropped) if schedule is not None else {},
            load_figures=dict(schedule.figures) if schedule is not None else {},
            load_notes=schedule.notes if schedule is not None else (),
            environment=_environment(record),
        )

    async def _run(self) -> None:
        order = self.order
        client = open_client(order.url, api_key=order.api_key, ca_file=order.ca_file, version=order.kvadvise_version)
        async with client:
            self.served, _ = await served_by(client, order.url, wanted_model=order.model)
            self.schedule = scheduled(order, limits_of(order.planned, self.served))
            if self._hooks.on_schedule is not None:
                self._hooks.on_schedule(self.schedule, self.served)
            sender = Client(self._target(), seed=order.seed, processes=order.processes)
            try:
                await sender.start()
                self._check_probe(sender)
                await self._play(client, sender, self.schedule)
            finally:
                await sender.close()

    async def _play(self, client: httpx.AsyncClient, sender: Client, schedule: Schedule) -> None:
        order, zero = self.order, time.perf_counter()
        self._started_at = datetime.datetime.now().astimezone()
        self._watcher = Watcher(
            client, order.url, zero=zero, probes=self.probes, hang_after_s=order.hang_after_s,
            on_snapshot=self._tell_snapshot,
        )  # fmt: skip
        self._player = Player(
            schedule, sender, self._watcher, zero=zero, on_phase=self._hooks.on_phase,
            limit_s=order.minutes * 60 if order.minutes is not None else None,
        )  # fmt: skip
        with _Signals(self._player):
            await self._player.play()

    def _check_probe(self, sender: Client) -> None:
        """A server that refuses the key for completions refuses every request."""
        if sender.probe is not None and sender.probe.status in (401, 403):
            raise EngineUnavailable(
                f"{self.order.url} refuses the key ({sender.probe.status})",
                hint="put the server's key into KVADVISE_API_KEY",
            )

    def _tell_snapshot(self, seen: Snapshot) -> None:
        if self._hooks.on_snapshot is not None and self._player is not None:
            self._hooks.on_snapshot(seen, self._player.record)

    def _target(self) -> Target:
        order, served = self.order, self.served
        return Target(
            url=order.url,
            model=served.model if served is not None and served.model is not None else order.model or "",
            vocab_size=order.vocabulary.size,
            salt=f"kvadvise-{secrets.token_hex(8)}",
            avoid_ids=order.vocabulary.avoid,
            api_key=order.api_key,
            ca_file=order.ca_file,
            request_timeout_s=order.request_timeout_s,
        )


def limits_of(planned: Planned | None, served: Served) -> Limits:
    """What the server takes: what it says itself, else what it was planned with.

    Raises InvalidInput where neither says how long a request may be.
    """
    length = served.max_model_len or (planned.max_model_len if planned is not None else None)
    if length is None:
        raise InvalidInput(
            "neither the server nor the plan says max_model_len", where=served.url, hint="plan the profile first"
        )
    size = served.block_size
    said = served.num_blocks * size if served.num_blocks and size else 0
    foretold = (planned.capacity_tokens or 0) if planned is not None else 0
    return Limits(
        max_model_len=length,
        max_num_seqs=planned.max_num_seqs if planned is not None else None,
        capacity_tokens=max(said, foretold) or None,
        block_size=size or (planned.block_size if planned is not None else None),
    )


def scheduled(order: Order, limits: Limits) -> Schedule:
    """The schedule of an order. Raises InvalidInput for a trace that cannot be read."""
    trace = order.workload.workload.trace
    rows = read_trace(order.base_dir / trace) if trace is not None else None
    return make_schedule(
        order.workload, limits, order.seed, phases=order.phases, minutes=order.minutes, trace=rows
    )  # fmt: skip


class _Signals:
    """While the load is played a signal ends it in order; the same again ends it at once."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._seen = 0
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # whoever runs it in a thread of its own ends it otherwise
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            self._before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, self._take, number)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _take(self, number: int) -> None:
        self._seen += 1
        self._player.end("interrupted", f"interrupted by {signal.Signals(number).name}")
        if self._seen > 1 and self._task is not None:
            self._task.cancel()


def _environment(record: Record) -> dict[str, str]:
    loops = sorted({facts.loop for facts in record.client})
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "event_loop": ", ".join(loops) or "none",
        "httpx": httpx.__version__,
    }
