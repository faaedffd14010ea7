"""`gpu: auto`: what NVML, the amdgpu driver or nothing at all makes of a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.units import GIB
from advisor.workload import GpuRef
from kvadvise.gpu_detect import cpu_gpu, detect_gpu
from kvadvise.gpus import resolve_gpu
from tests.kvadvise.machines import MIB, Card, FakeNvml, machine, meminfo, write_tree


def rtx4090(**other: object) -> Card:
    return Card(**{"name": "NVIDIA GeForce RTX 4090", "total": 24564, "reserved": 354, **other})  # type: ignore[arg-type]


def test_what_the_driver_reserves_is_taken_off_the_total_as_cuda_does(tmp_path: Path) -> None:
    nvml = FakeNvml([rtx4090()])
    gpu = detect_gpu(machine(tmp_path, nvml))
    assert gpu.name == "RTX 4090"
    assert gpu.device_name == "NVIDIA GeForce RTX 4090"
    assert gpu.total_bytes.value == 24210 * MIB  # as PyTorch reports it with that driver
    assert gpu.total_bytes.basis == "measured"
    assert gpu.total_bytes.low < gpu.total_bytes.value < gpu.total_bytes.high
    assert gpu.free_bytes.high < gpu.total_bytes.value
    assert gpu.free_bytes.value / GIB == pytest.approx(24206 / 1024 - 0.50, abs=0.01)
    assert gpu.bandwidth_bytes_per_s == 1008e9
    assert gpu.source.startswith("NVML")
    assert not nvml.is_open


def test_without_that_call_the_catalogues_band_stands(tmp_path: Path) -> None:
    gpu = detect_gpu(machine(tmp_path, FakeNvml([rtx4090()], memory_v2=False)))
    assert gpu.total_bytes.low / GIB == pytest.approx(23.52, abs=0.006)
    assert gpu.total_bytes.high / GIB == pytest.approx(23.65, abs=0.006)


def test_a_card_with_other_memory_than_its_row_keeps_its_own(tmp_path: Path) -> None:
    modified = Card(name="NVIDIA GeForce RTX 4090", total=49140)
    gpu = detect_gpu(machine(tmp_path, FakeNvml([modified], memory_v2=False)))
    assert gpu.name == "RTX 4090"
    assert 47.3 < gpu.total_bytes.low / GIB < gpu.total_bytes.high / GIB < 47.7
    assert gpu.total_bytes.basis == "estimated"
    with_ecc = Card(name="NVIDIA RTX A6000", total=46068, capability=(8, 6))
    gpu = detect_gpu(machine(tmp_path, FakeNvml([with_ecc], memory_v2=False)))
    assert gpu.total_bytes.low / GIB <= 44.43 <= gpu.total_bytes.high / GIB  # what CUDA reports with ECC on


def test_one_name_of_two_cards_goes_by_the_size(tmp_path: Path) -> None:
    for total, name in ((10240, "RTX 3080 10GB"), (12288, "RTX 3080 12GB")):
        card = Card(name=b"NVIDIA GeForce RTX 3080", total=total, capability=(8, 6))
        assert detect_gpu(machine(tmp_path, FakeNvml([card]))).name == name


def test_a_gpu_the_catalogue_lacks_is_taken_as_it_is(tmp_path: Path) -> None:
    card = Card(name="NVIDIA Acme 9000", total=100_000, capability=(13, 0), reserved=700)
    gpu = detect_gpu(machine(tmp_path, FakeNvml([card])))
    assert (gpu.name, gpu.vendor, gpu.compute_capability) == ("NVIDIA Acme 9000", "nvidia", (13, 0))
    assert gpu.total_bytes.value == 99_300 * MIB
    assert 0 < gpu.free_bytes.low < gpu.free_bytes.high < gpu.total_bytes.high
    assert gpu.flops == {}


def test_equal_gpus_are_counted_and_the_fullest_decides_what_is_free(tmp_path: Path) -> None:
    cards = [rtx4090(uuid=f"GPU-{i}", used=used) for i, used in enumerate((10, 8000, 20, 10))]
    gpu = detect_gpu(machine(tmp_path, FakeNvml(cards)))
    assert gpu.count == 4
    assert gpu.free_bytes.high < (24210 - 8000) * MIB
    assert any("are in use by other programs" in note for note in gpu.notes)


def test_unlike_gpus_count_as_the_smallest(tmp_path: Path) -> None:
    big = Card(name="NVIDIA RTX 6000 Ada Generation", total=49140, reserved=600, uuid="GPU-b")
    gpu = detect_gpu(machine(tmp_path, FakeNvml([big, rtx4090()])))
    assert (gpu.name, gpu.count) == ("RTX 4090", 2)
    assert any("unlike GPUs" in note and "CUDA_VISIBLE_DEVICES" in note for note in gpu.notes)


def test_a_display_card_vllm_has_no_kernels_for_is_left_out(tmp_path: Path) -> None:
    display = Card(name="NVIDIA GeForce GT 1030", total=2048, capability=(6, 1))
    gpu = detect_gpu(machine(tmp_path, FakeNvml([display, rtx4090()])))
    assert (gpu.name, gpu.count) == ("RTX 4090", 1)
    assert any("GT 1030 is left out" in note for note in gpu.notes)


@pytest.mark.parametrize(
    ("visible", "count"),
    [("0", 1), ("0,2", 2), ("2,0,0", 2), ("1,9,0", 1), ("GPU-1", 1), ("GPU-1,GPU-3", 2), ("GPU-x,0", 0), ("", 0),
     ("-1", 0), ("99999999999999999999", 0)],
)  # fmt: skip
def test_only_what_cuda_would_see_is_counted(tmp_path: Path, visible: str, count: int) -> None:
    write_tree(tmp_path, {"/proc/meminfo": meminfo(64_000, 60_000)})
    cards = [rtx4090(uuid=f"GPU-{i}") for i in range(4)]
    gpu = detect_gpu(machine(tmp_path, FakeNvml(cards), CUDA_VISIBLE_DEVICES=visible))
    assert gpu.is_cpu == (count == 0)
    if count:
        assert gpu.count == count


def test_with_mig_on_one_slice_is_the_gpu(tmp_path: Path) -> None:
    part = "NVIDIA A100-SXM4-40GB MIG"
    slices = [
        Card(name=f"{part} 3g.20gb", total=20096, capability=(8, 0), uuid="MIG-a"),
        Card(name=f"{part} 1g.10gb", total=9856, capability=(8, 0), uuid="MIG-b"),
    ]
    card = Card(name="NVIDIA A100-SXM4-40GB", total=40960, capability=(8, 0), slices=slices)
    gpu = detect_gpu(machine(tmp_path, FakeNvml([card])))
    assert (gpu.name, gpu.count) == ("A100 SXM4 40GB MIG 1g.10gb", 1)
    assert gpu.device_name == f"{part} 1g.10gb"
    assert gpu.total_bytes.value == 9856 * MIB
    assert gpu.bandwidth_bytes_per_s == pytest.approx(1555e9 / 4)
    chosen = detect_gpu(machine(tmp_path, FakeNvml([card]), CUDA_VISIBLE_DEVICES="MIG-a"))
    assert chosen.name == "A100 SXM4 40GB MIG 3g.20gb"


def test_mig_without_a_slice_leaves_no_gpu(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/proc/meminfo": meminfo(64_000, 60_000)})
    card = Card(name="NVIDIA H100 80GB HBM3", total=81559, capability=(9, 0), slices=[])
    assert detect_gpu(machine(tmp_path, FakeNvml([card]))).is_cpu


def test_under_wsl_cuda_reports_what_nvml_does(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"})
    card = Card(name="NVIDIA GeForce RTX 5080", total=16303, used=1100, capability=(12, 0))
    gpu = detect_gpu(machine(tmp_path, FakeNvml([card])))
    assert gpu.total_bytes.value == 16303 * MIB
    assert gpu.free_bytes.low / GIB <= 14.55 <= gpu.free_bytes.high / GIB  # vllm#30707
    assert any("WSL" in note for note in gpu.notes)


def test_a_gpu_that_shares_the_hosts_memory_has_what_the_host_has(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/proc/meminfo": meminfo(124_610, 114_000)})
    gpu = detect_gpu(machine(tmp_path, FakeNvml([Card(name="NVIDIA GB10", total=None, capability=(12, 1))])))
    assert gpu.name == "GB10 (DGX Spark)"
    assert gpu.unified_memory
    assert gpu.total_bytes.high == 124_610 * MIB
    assert gpu.free_bytes.value == 114_000 * MIB
    bare = detect_gpu(machine(tmp_path / "none", FakeNvml([Card(name="NVIDIA GB10", total=None, capability=(12, 1))])))
    assert bare.total_bytes.low / GIB == pytest.approx(117.51, abs=0.01)
    unknown = FakeNvml([Card(name="NVIDIA Acme", total=None)])
    with pytest.raises(InvalidInput, match="how much memory"):
        detect_gpu(machine(tmp_path / "none", unknown))


def test_no_driver_means_the_cpu(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/proc/meminfo": meminfo(64_000, 60_000)})
    for nvml in (None, FakeNvml([], init_error=12), FakeNvml([], init_error=9), FakeNvml([])):
        gpu = detect_gpu(machine(tmp_path, nvml))
        assert gpu.is_cpu
        assert gpu.notes[0].startswith("no GPU was found")


@pytest.mark.parametrize("nvml", [None, FakeNvml([], init_error=18)])
def test_a_gpu_that_cannot_be_read_is_an_error_and_not_a_cpu(tmp_path: Path, nvml: FakeNvml | None) -> None:
    write_tree(
        tmp_path,
        {"/proc/meminfo": meminfo(64_000, 60_000), "/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model"},
    )
    with pytest.raises(InvalidInput, match="cannot read this machine's NVIDIA GPU") as refused:
        resolve_gpu(GpuRef(name="auto"), machine=machine(tmp_path, nvml))
    assert "nvidia-ml-py" in refused.value.hint


def test_wsl_offers_an_nvidia_gpu_by_its_library(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/proc/meminfo": meminfo(64_000, 60_000), "/usr/lib/wsl/lib/libd3d12.so": ""})
    assert detect_gpu(machine(tmp_path)).is_cpu
    write_tree(tmp_path, {"/usr/lib/wsl/lib/libnvidia-ml.so.1": ""})
    with pytest.raises(InvalidInput, match="nvidia-ml-py is not installed"):
        detect_gpu(machine(tmp_path))


def test_a_failure_half_way_is_an_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {"/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model"})
    nvml = FakeNvml([rtx4090()])

    def lost(card: Card) -> str:
        raise nvml.NVMLError(15)

    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lost)
    with pytest.raises(InvalidInput, match="NVML error 15"):
        detect_gpu(machine(tmp_path, nvml))
    assert not nvml.is_open


def amd_files(card: str, total_mib: int, used_mib: int, name: str | None, vendor: str = "0x1002") -> dict[str, str]:
    folder = f"/sys/class/drm/{card}/device"
    files = {
        f"{folder}/vendor": f"{vendor}\n",
        f"{folder}/mem_info_vram_total": f"{total_mib * MIB}\n",
        f"{folder}/mem_info_vram_used": f"{used_mib * MIB}\n",
    }
    return files if name is None else {**files, f"{folder}/product_name": f"{name}\n"}


def test_amd_cards_come_from_sysfs(tmp_path: Path) -> None:
    for i in range(8):
        write_tree(tmp_path, amd_files(f"card{i}", 196_592, 300, "AMD Instinct MI300X"))
    write_tree(tmp_path, amd_files("card8", 512, 10, None))  # a processor's own graphics
    write_tree(tmp_path, amd_files("card9", 16_000, 10, None, vendor="0x8086"))
    write_tree(tmp_path, {"/sys/class/drm/card0-DP-1/status": "connected"})
    gpu = detect_gpu(machine(tmp_path))
    assert (gpu.name, gpu.vendor, gpu.count) == ("MI300X", "amd", 8)
    assert gpu.compute_capability is None
    assert gpu.total_bytes.low / GIB <= 191.69 <= gpu.total_bytes.high / GIB + 0.01
    assert gpu.free_bytes.high <= gpu.total_bytes.high


def test_amd_cards_without_a_known_name_or_alike(tmp_path: Path) -> None:
    write_tree(tmp_path, {**amd_files("card0", 24_560, 300, None), **amd_files("card1", 16_368, 300, None)})
    gpu = detect_gpu(machine(tmp_path))
    assert (gpu.name, gpu.vendor, gpu.count) == ("AMD GPU", "amd", 2)
    assert gpu.total_bytes.high < 16 * GIB
    assert any("unlike" in note for note in gpu.notes)


def test_what_is_stated_beside_auto_is_kept(tmp_path: Path) -> None:
    here = machine(tmp_path, FakeNvml([rtx4090(uuid="GPU-0"), rtx4090(uuid="GPU-1")]))
    assert resolve_gpu(GpuRef(name="auto"), machine=here).count == 2
    gpu = resolve_gpu(GpuRef(name="Auto", count=2, memory_gib=20, free_gib=18), machine=here)
    assert (gpu.total_bytes.value, gpu.free_bytes.value) == (20 * GIB, 18 * GIB)
    smaller = resolve_gpu(GpuRef(name="auto", memory_gib=20), machine=here)
    assert smaller.free_bytes.high <= 20 * GIB
    with pytest.raises(InvalidInput, match="more than this machine shows"):
        resolve_gpu(GpuRef(name="auto", count=3), machine=here)


def test_naming_a_gpu_loads_nothing_that_detects_one() -> None:
    code = (
        "import sys; from kvadvise.gpus import resolve_gpu; from advisor.workload import GpuRef;"
        "resolve_gpu(GpuRef(name='RTX 4090'));"
        "print([m for m in ('pynvml', 'kvadvise.gpu_detect', 'kvadvise.nvml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_binding_has_every_call_that_is_used() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    used = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert not [name for name in used if not hasattr(pynvml, name)]


@pytest.mark.parametrize(
    ("cpuinfo", "found"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16 amx_bf16\n", frozenset({"avx512_bf16"})),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", frozenset[str]()),
        ("processor\t: 0\n", None),
        (None, None),
    ],
)
def test_the_processor_tells_its_instructions(
    tmp_path: Path, cpuinfo: str | None, found: frozenset[str] | None
) -> None:
    files = {"/proc/meminfo": meminfo(64_000, 60_000)} | ({} if cpuinfo is None else {"/proc/cpuinfo": cpuinfo})
    write_tree(tmp_path, files)
    assert cpu_gpu(machine(tmp_path)).instructions == found
