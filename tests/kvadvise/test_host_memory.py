"""`gpu: cpu`: RAM, NUMA node and cgroup of machines that are directory trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.workload import GpuRef
from kvadvise.gpu_detect import cpu_gpu
from kvadvise.gpus import resolve_gpu
from kvadvise.host_memory import HostMemory, read_host_memory
from kvadvise.machine import this_machine
from tests.kvadvise.machines import MIB, machine, meminfo, node_meminfo, write_tree

RAM = {"/proc/meminfo": meminfo(64_000, 48_000)}
STATUS = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n"


def read(root: Path, files: dict[str, str]) -> HostMemory:
    memory = read_host_memory(machine(write_tree(root, {**RAM, **files})))
    assert memory is not None
    return memory


def mib(memory: HostMemory) -> tuple[float, float]:
    return memory.total_bytes / MIB, memory.available_bytes / MIB


def test_ram_alone(tmp_path: Path) -> None:
    memory = read(tmp_path, {})
    assert mib(memory) == (64_000, 48_000)
    assert memory.source == "/proc/meminfo"


def test_a_kernel_without_memavailable(tmp_path: Path) -> None:
    memory = read(tmp_path, {"/proc/meminfo": "MemTotal: 1024 kB\nMemFree: 512 kB\n"})
    assert (memory.total_bytes, memory.available_bytes) == (MIB, MIB // 2)


@pytest.mark.parametrize("text", ["", "garbage\n", "MemTotal: lots kB\n", "MemTotal: 0 kB\n"])
def test_a_machine_that_does_not_say(tmp_path: Path, text: str) -> None:
    assert read_host_memory(machine(write_tree(tmp_path, {"/proc/meminfo": text}))) is None
    assert read_host_memory(machine(tmp_path / "nowhere")) is None


def test_a_container_of_cgroup_v2(tmp_path: Path) -> None:
    memory = read(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/\n",
            "/sys/fs/cgroup/memory.max": f"{16_000 * MIB}\n",
            "/sys/fs/cgroup/memory.current": f"{6_000 * MIB}\n",
        },
    )
    assert mib(memory) == (16_000, 10_000)
    assert "cgroup v2" in memory.source
    assert memory.notes == ()


def test_a_container_of_cgroup_v1_whose_path_is_the_hosts(tmp_path: Path) -> None:
    memory = read(
        tmp_path,
        {
            "/proc/self/cgroup": "9:name=systemd:/docker/abc\n4:cpu,memory:/docker/abc\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8_000 * MIB}\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{1_000 * MIB}\n",
        },
    )
    assert mib(memory) == (8_000, 7_000)
    assert "cgroup v1" in memory.source


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "-1\n", "0\n", ""])
def test_no_limit_is_no_limit(tmp_path: Path, limit: str) -> None:
    files = {
        "/sys/fs/cgroup/memory.max": limit,
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": limit,
    }
    assert mib(read(tmp_path, files)) == (64_000, 48_000)


def test_the_tightest_of_the_groups_around_counts_and_is_noted_where_vllm_does_not_look(tmp_path: Path) -> None:
    memory = read(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/system.slice/job.service/step\n",
            "/sys/fs/cgroup/system.slice/memory.max": f"{32_000 * MIB}",
            "/sys/fs/cgroup/system.slice/memory.current": f"{30_000 * MIB}",
            "/sys/fs/cgroup/system.slice/job.service/memory.max": f"{12_000 * MIB}",
            "/sys/fs/cgroup/system.slice/job.service/memory.current": f"{4_000 * MIB}",
            "/sys/fs/cgroup/system.slice/job.service/step/memory.max": "max",
        },
    )
    assert mib(memory) == (12_000, 2_000)  # the limit of the job, the room of the slice
    assert any("/system.slice/job.service, which vLLM does not read" in note for note in memory.notes)


def test_usage_above_the_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {"/sys/fs/cgroup/memory.max": str(8 * MIB), "/sys/fs/cgroup/memory.current": str(9 * MIB)}
    assert mib(read(tmp_path, files)) == (8, 0)


def test_a_path_outside_the_namespace_is_not_followed(tmp_path: Path) -> None:
    secret = {"/sys/fs/memory.max": str(5 * MIB), "/proc/self/cgroup": "0::/../..\n"}
    assert mib(read(tmp_path, secret)) == (64_000, 48_000)


def numa(cpus: str, mems: str, first_core_node: int) -> dict[str, str]:
    core = cpus.split(",")[0].split("-")[0]
    return {
        "/proc/self/status": STATUS.format(cpus=cpus, mems=mems),
        f"/sys/devices/system/cpu/cpu{core}/node{first_core_node}/cpulist": cpus,
        "/sys/devices/system/node/node0/meminfo": node_meminfo(0, 30_000, 10_000, file_mib=2_000, slab_mib=500),
        "/sys/devices/system/node/node1/meminfo": node_meminfo(1, 34_000, 20_000, file_mib=1_000, slab_mib=100),
    }


def test_the_node_of_the_first_allowed_core_is_what_vllm_binds_to(tmp_path: Path) -> None:
    memory = read(tmp_path / "a", numa("0-15", "0-1", 0))
    assert mib(memory) == (30_000, 14_500)
    assert any("binds one rank to NUMA node 0" in note for note in memory.notes)
    assert mib(read(tmp_path / "b", numa("16-31,40", "0-1", 1))) == (34_000, 22_100)


def test_a_node_that_is_not_allowed_gives_way_to_the_first_that_is(tmp_path: Path) -> None:
    assert mib(read(tmp_path, numa("0-15", "1", 0))) == (34_000, 22_100)


def test_a_cgroup_below_the_node_bounds_both(tmp_path: Path) -> None:
    files = {**numa("0-15", "0-1", 0), "/sys/fs/cgroup/memory.max": str(9_000 * MIB)}
    files["/sys/fs/cgroup/memory.current"] = str(1_000 * MIB)
    assert mib(read(tmp_path, files)) == (9_000, 8_000)


def test_an_only_node_below_the_ram_may_still_grow(tmp_path: Path) -> None:
    memory = read(tmp_path, {"/sys/devices/system/node/node0/meminfo": node_meminfo(0, 8_000, 7_000)})
    assert mib(memory) == (8_000, 7_000)
    assert memory.total_at_most == 64_000 * MIB
    assert memory.available_at_most == 48_000 * MIB
    assert any("may still grow" in note for note in memory.notes)
    gpu = cpu_gpu(machine(tmp_path))
    assert (gpu.total_bytes.low, gpu.total_bytes.high) == (8_000 * MIB, 64_000 * MIB)


def test_one_node_of_several_does_not_grow(tmp_path: Path) -> None:
    memory = read(tmp_path, numa("0-15", "0-1", 0))
    assert memory.total_at_most == memory.total_bytes
    assert memory.available_at_most == memory.available_bytes


def test_the_cpu_as_a_gpu(tmp_path: Path) -> None:
    here = machine(write_tree(tmp_path, RAM))
    gpu = resolve_gpu(GpuRef(name=" CPU "), machine=here)
    assert gpu.is_cpu
    assert gpu.unified_memory
    assert gpu.compute_capability is None
    assert (gpu.total_bytes.value, gpu.free_bytes.value) == (64_000 * MIB, 48_000 * MIB)
    assert gpu.total_bytes.basis == gpu.free_bytes.basis == "measured"
    stated = resolve_gpu(GpuRef(name="cpu", free_gib=4, count=2), machine=here)
    assert (stated.free_bytes.value, stated.count) == (4 * 1024 * MIB, 2)


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=60))
def test_files_of_any_content_never_raise(
    tmp_path_factory: pytest.TempPathFactory, cgroup: str, status: str, limit: str
) -> None:
    root = tmp_path_factory.mktemp("machine")
    files = {"/proc/self/cgroup": cgroup, "/proc/self/status": status, "/sys/fs/cgroup/memory.max": limit}
    memory = read_host_memory(machine(write_tree(root, {**RAM, **files})))
    assert memory is not None
    assert 0 <= memory.available_bytes <= memory.total_bytes <= memory.total_at_most


@pytest.mark.skipif(not Path("/proc/meminfo").is_file(), reason="this system has no /proc/meminfo")
def test_this_machine_can_be_read() -> None:
    gpu = resolve_gpu(GpuRef(name="cpu"), machine=this_machine())
    assert 0 <= gpu.free_bytes.low <= gpu.total_bytes.low <= gpu.total_bytes.high
