"""The GPU catalogue and how a GPU is named: every row, many spellings, what users state, what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.units import GIB
from advisor.workload import GpuRef
from kvadvise import gpu_rows
from kvadvise.gpu_names import name_key
from kvadvise.gpu_rows import Catalogue, GpuRow, bundled_folder, load_row, share
from kvadvise.gpus import list_gpus, resolve_gpu
from kvadvise.machine import Machine

ROWS = Catalogue().all()


def named(name: str, **stated: Any) -> Any:
    return resolve_gpu(GpuRef(name=name, **stated))


# ---- the data


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_row_is_whole_and_sourced(row: GpuRow) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.id)
    assert row.vendor == "cpu" or row.bandwidth is not None
    assert (row.compute_capability is not None) == (row.vendor == "nvidia")
    assert not row.dense_tflops or row.flops_source
    assert row.memory is None or row.memory.source
    if row.memory is not None and row.memory.nvml_mib is not None:
        assert row.memory.high <= row.memory.nvml_mib / 1024  # the driver keeps some back
    if row.mig is not None and row.memory is not None:
        for profile in row.mig.slices.values():
            assert (profile.gib or 0) <= 1.01 * share(profile.memory) * row.memory.high


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_name_of_a_row_finds_it(row: GpuRow) -> None:
    for name in (row.id, row.name, row.device_name, *row.aliases):
        assert row.id in {found.id for found in Catalogue().find(name)}, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_file_name_belongs_to_one_gpu(row: GpuRow) -> None:
    others = [other for other in ROWS if other.id != row.id]
    assert not [other.id for other in others if name_key(row.id) in other.keys]
    assert not [other.id for other in others if name_key(row.name) in other.keys]


def test_rows_of_one_device_name_differ_in_memory() -> None:
    totals: dict[str, list[float]] = {}
    for row in ROWS:
        if row.memory is not None:
            totals.setdefault(name_key(row.device_name), []).append(row.memory.gib)
    for device, sizes in totals.items():
        ordered = sorted(sizes)
        assert all(b > 1.08 * a for a, b in pairwise(ordered)), device


def test_vllm_reads_a100_in_the_device_name_of_every_a100_and_of_no_other() -> None:
    for row in ROWS:
        assert ("a100" in row.device_name.lower()) == row.id.startswith("a100-"), row.id


# Totals as CUDA or HIP reports them, GiB, with where they were read.
TOTALS = [
    ("T4", 14.56, 14.76, "YOLO and Unsloth banners, 14912 to 15110 MiB"),
    ("V100 16GB", 15.75, 15.78, "YOLO banners, 16130 and 16160 MiB"),
    ("V100 32GB", 31.73, 31.74, "YOLO banners, 32494 and 32501 MiB"),
    ("P100", 15.89, 15.90, "YOLO banners, 16269 to 16281 MiB"),
    ("RTX 2080 Ti", 10.57, 10.76, "YOLO banners, 10825 to 11020 MiB"),
    ("RTX 3060", 11.63, 11.76, "YOLO banners, 11910 to 12045 MiB"),
    ("RTX 3070", 7.57, 7.79, "YOLO banners, 7753 to 7974 MiB"),
    ("RTX 3080 10GB", 9.77, 9.77, "YOLO banners, 10002 and 10009 MiB"),
    ("RTX 3080 12GB", 11.83, 11.83, "YOLO banner, 12117 MiB"),
    ("RTX 3090", 23.56, 23.70, "vllm#16343, vllm#10517, YOLO banners"),
    ("RTX 3090 Ti", 23.54, 23.65, "YOLO banners, 24110 to 24214 MiB"),
    ("RTX 4060 Ti 16GB", 15.57, 15.57, "llama.cpp, 15944 MiB"),
    ("RTX 4090", 23.52, 23.65, "YOLO banners, 24081 to 24217 MiB; OOM texts"),
    ("RTX 5080", 15.47, 15.48, "vllm#14452, YOLO banner 15840 MiB"),
    ("RTX 5090", 31.342, 31.37, "deviceQuery, Unsloth banners, Wan2.1#465"),
    ("A10", 22.20, 22.20, "llama.cpp, 22731 MiB"),
    ("A10G", 22.06, 22.06, "PyTorch device line"),
    ("A30", 23.50, 23.60, "YOLO banner 24164 MiB, vLLM OOM text"),
    ("RTX A6000", 47.431, 47.431, "Unsloth banner, ECC off"),
    ("RTX A4000", 15.61, 15.74, "YOLO banners, OOM text"),
    ("RTX 6000 Ada", 47.36, 47.40, "YOLO banners 48497 and 48539 MiB"),
    ("RTX PRO 6000", 94.97, 94.97, "llama.cpp 97247 MiB, vLLM start-up error"),
    ("L4", 22.03, 22.16, "vLLM profile total, YOLO banners"),
    ("L40S", 44.39, 44.43, "vLLM and PyTorch OOM texts; vllm#23230"),
    ("A100-PCIE-40GB", 39.43, 39.43, "YOLO banner, 40377 MiB"),
    ("A100-SXM4-40GB", 39.49, 39.56, "vllm#25970, YOLO banner 40514 MiB"),
    ("A100-SXM4-80GB", 79.151, 79.25, "Unsloth banner, OOM text"),
    ("H100 80GB HBM3", 79.11, 79.19, "vLLM logs"),
    ("H100 NVL", 93.02, 93.02, "vllm#16712"),
    ("H200", 139.81, 139.81, "vllm#34553, vLLM log"),
    ("GH200 480GB", 94.50, 94.50, "device text"),
    ("B200", 178.353, 178.353, "unslothai/notebooks, vLLM start-up error"),
    ("B300", 267.69, 267.69, "vLLM free line"),
    ("Jetson AGX Orin 64GB", 61.35, 61.35, "llama.cpp 62827 MiB"),
    ("Jetson AGX Thor", 122.80, 122.80, "llama.cpp 125748 MiB"),
    ("MI300X", 191.69, 191.98, "OOM texts, vLLM start-up errors"),
    ("MI325X", 255.98, 255.98, "vllm#41962"),
    ("MI355X", 287.98, 287.98, "vLLM start-up error"),
    ("RX 7900 XTX", 23.98, 23.98, "llama.cpp 24560 MiB"),
    ("R9700", 31.86, 31.86, "llama.cpp 32624 MiB"),
]


@pytest.mark.parametrize(("name", "lowest", "highest", "source"), TOTALS, ids=[t[0] for t in TOTALS])
def test_totals_are_what_logs_print(name: str, lowest: float, highest: float, source: str) -> None:
    total = named(name).total_bytes
    assert total.value / GIB == pytest.approx(lowest, abs=0.006), source
    assert total.low / GIB <= lowest + 0.006
    assert total.high / GIB >= highest - 0.006
    assert total.basis == "measured"


def test_gb10_keeps_the_lowest_total_of_its_start_up_errors_and_the_whole_band() -> None:
    total = named("DGX Spark").total_bytes
    assert total.value / GIB == pytest.approx(119.63, abs=0.006)
    assert total.low / GIB <= 117.51 + 0.006
    assert total.high / GIB >= 121.69 - 0.006


def shared_table() -> list[dict[str, Any]]:
    root = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).parents[3] / "shared"))
    table = root / "reference" / "gpus.jsonl"
    if not table.is_file():
        pytest.skip("the wide table of GPU figures (KVADVISE_SHARED/reference/gpus.jsonl) is not here")
    return [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines() if line]


OTHER_VALUE = {  # why the catalogue differs from the table
    "gb10": "lower totals in later start-up errors",
    "arc-b580": "the table's figure is 10^6 bytes",
    "l40s": "44.39 in ten and more later texts",
    "a800-80-sxm": "one log; the A100 of the same memory was seen with less",
}
OTHER_NAME = {
    "v100-16": "V100 16GB", "v100-32": "V100 32GB", "rtx3080-12": "RTX 3080 12GB", "rtx3080-10": "RTX 3080 10GB",
    "a16": "A16", "gb300": "GB300 NVL72", "mi250x": "MI250X", "jetson-orin-64": "Jetson AGX Orin 64GB",
    "rtx4060ti-16": "RTX 4060 Ti 16GB", "rtx5060ti-16": "RTX 5060 Ti 16GB",
    "a800-80-sxm": "A800 80GB", "a800-40-pcie": "A800 40GB", "p100": "P100", "arc-a770": "Arc A770",
    "gaudi2": "Gaudi 2", "gaudi3": "Gaudi 3",
}  # fmt: skip


def test_the_catalogue_agrees_with_the_wide_table() -> None:
    compared = 0
    for entry in shared_table():
        (row,) = Catalogue().find(OTHER_NAME.get(entry["id"], entry["name"]))
        reported = entry["reported_total"]
        capability = (entry["compute_capability"] or {}).get("v", "")
        if row.vendor == "nvidia":
            assert row.compute_capability == capability, row.id
        assert row.bandwidth is not None
        assert row.bandwidth.gb_per_s == pytest.approx(entry["memory_bandwidth_gbs"]["v"]), row.id
        for dtype, figure in entry["dense_tflops"].items():
            known = figure and figure["v"] is not None
            assert row.dense_tflops.get(dtype) == (pytest.approx(figure["v"]) if known else None), (row.id, dtype)
        if reported["suggest_gib"] is None:
            continue
        compared += 1
        assert row.memory is not None
        if entry["id"] not in OTHER_VALUE:
            assert row.memory.gib == pytest.approx(reported["suggest_gib"], abs=0.006), row.id
        for end in (reported["linux_min_gib"], reported["linux_max_gib"]):
            assert end is None or row.memory.low - 0.006 <= end <= row.memory.high + 0.006, row.id
    assert compared >= 70


# ---- names

SPELLINGS = {
    "rtx-4090": ["RTX 4090", "rtx4090", "4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090", "RTX 4090 24GB",
                 "rtx-4090", "RTX_4090", "geforce-rtx-4090", "NVIDIA RTX 4090", "RTX 4090 24 GiB"],
    "rtx-4090-laptop": ["RTX 4090 Laptop", "NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Mobile"],
    "rtx-4090-d": ["RTX 4090 D", "RTX 4090D"],
    "rtx-4070-ti-super": ["4070 Ti Super", "RTX 4070 Ti SUPER 16GB"],
    "rtx-3080-10gb": ["RTX 3080 10GB", "3080 10 GB"],
    "rtx-3080-12gb": ["RTX 3080 12GB", "GeForce RTX 3080 (12 GB)"],
    "rtx-4060-ti-16gb": ["RTX 4060 Ti 16GB", "4060 Ti 16GB"],
    "rtx-4060-ti-8gb": ["RTX 4060 Ti 8GB"],
    "rtx-5090": ["RTX 5090", "5090 32GB"],
    "t4": ["T4", "Tesla T4", "NVIDIA T4", "t4 16gb"],
    "v100-32gb": ["V100 32GB", "Tesla V100-SXM2-32GB", "V100S 32GB", "V100-PCIE-32GB"],
    "v100-16gb": ["V100 16 GB", "Tesla V100-PCIE-16GB"],
    "a10g": ["A10G", "NVIDIA A10G", "a10g 24gb", "AWS g5"],
    "a10": ["A10"],
    "l4": ["L4", "NVIDIA L4", "L4 24GB"],
    "l40": ["L40"],
    "l40s": ["L40S", "NVIDIA L40S", "l40s 48gb"],
    "rtx-a6000": ["RTX A6000", "A6000", "NVIDIA RTX A6000", "Quadro RTX A6000"],
    "rtx-6000-ada": ["RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", "6000 Ada 48GB"],
    "rtx-pro-6000": ["RTX PRO 6000", "RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"],
    "rtx-pro-6000-server": ["RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"],
    "a100-sxm4-40gb": ["a100 40gb", "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "A100 40 GiB"],
    "a100-sxm4-80gb": ["A100-80GB", "A100 80 GB", "A100-SXM4-80GB", "nvidia-a100-sxm4-80gb", "A100 SXM 80GB"],
    "a100-pcie-80gb": ["A100 PCIe 80GB", "NVIDIA A100 80GB PCIe", "A100 80GB PCIE"],
    "a100-pcie-40gb": ["A100-PCIE-40GB", "a100 pcie 40gb"],
    "h100-80gb": ["H100 80GB", "h100", "H100", "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB", "H100 SXM", "H100 80 GiB"],
    "h100-pcie": ["H100 PCIe", "NVIDIA H100 PCIe", "H100 PCIe 80GB"],
    "h100-nvl": ["H100 NVL", "H100 NVL 94GB", "H100 94GB"],
    "h200": ["H200", "NVIDIA H200", "H200 141GB", "H200 SXM"],
    "h200-nvl": ["H200 NVL", "h200-nvl 141GB"],
    "h20-3e": ["H20-3e", "H20 141GB"],
    "gh200-96gb": ["GH200 96GB", "NVIDIA GH200 480GB"],
    "gh200-144gb": ["GH200 144G HBM3e", "GH200 144GB"],
    "b200": ["B200", "B200 180GB", "B200 192GB", "HGX B200"],
    "b300": ["B300", "B300 288GB", "NVIDIA B300 SXM6 AC"],
    "gb200": ["GB200", "GB200 NVL72"],
    "gb300-nvl72": ["GB300 NVL72", "GB300 288GB"],
    "gb300-dgx-station": ["DGX Station GB300"],
    "gb10": ["GB10", "DGX Spark", "NVIDIA GB10", "GB10 128GB"],
    "mi300x": ["MI300X", "AMD Instinct MI300X", "Instinct MI300X 192GB", "amd mi300x"],
    "rx-7900-xtx": ["RX 7900 XTX", "7900 XTX", "AMD Radeon RX 7900 XTX"],
    "arc-b580": ["Arc B580", "Intel(R) Arc(TM) B580 Graphics", "Intel Arc B580", "B580"],
}  # fmt: skip
TABLE = [(spelling, row_id) for row_id, spellings in SPELLINGS.items() for spelling in spellings]


def test_the_table_of_spellings_is_long_enough() -> None:
    assert len(TABLE) >= 60


@pytest.mark.parametrize(("spelling", "row_id"), TABLE)
def test_a_gpu_is_found_however_it_is_written(spelling: str, row_id: str) -> None:
    expected = load_row(bundled_folder() / f"{row_id}.yaml")
    gpu = named(spelling)
    assert (gpu.name, gpu.device_name) == (expected.name, expected.device_name)
    assert gpu.compute_capability == expected.capability


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("RTX 3080", ["RTX 3080 10GB", "RTX 3080 12GB"]),
        ("A100", ["A100 PCIe 40GB", "A100 PCIe 80GB", "A100 SXM4 40GB", "A100 SXM4 80GB"]),
        ("V100", ["V100 16GB", "V100 32GB"]),
        ("GH200", ["GH200 144GB", "GH200 96GB"]),
        ("NVIDIA GB300", ["GB300 DGX Station", "GB300 NVL72"]),
        ("Orin", ["Jetson AGX Orin 64GB", "Jetson Orin Nano 8GB"]),
        ("RTX 4060 Ti", ["RTX 4060 Ti 16GB", "RTX 4060 Ti 8GB"]),
        ("A100 MIG 3g.40gb", ["A100 PCIe 80GB MIG 3g.40gb", "A100 SXM4 80GB MIG 3g.40gb"]),
    ],
)
def test_a_name_of_several_gpus_lists_them_and_each_choice_works(name: str, choices: list[str]) -> None:
    with pytest.raises(InvalidInput, match="several GPUs") as refused:
        named(name)
    assert refused.value.hint.startswith(f"write one of: {', '.join(choices)};")
    for choice in choices:
        assert named(choice).name == choice


def test_a_stated_size_tells_gpus_of_one_name_apart() -> None:
    assert named("RTX 3080", memory_gib=11.83).name == "RTX 3080 12GB"
    assert named("RTX 3080", memory_gib=9.77).name == "RTX 3080 10GB"
    assert named("V100", memory_gib=31.73).name == "V100 32GB"


@pytest.mark.parametrize(
    ("name", "near"),
    [("RTX 4099", "RTX 4090"), ("H1000", "H100 SXM 80GB"), ("L40X", "L40S"), ("RTX 6000", "RTX 6000 Ada"),
     ("MI308X", "MI300X"), ("tesla t44", "T4")],
)  # fmt: skip
def test_an_unknown_name_suggests_near_ones_and_the_way_out(name: str, near: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        named(name)
    assert near in refused.value.hint
    assert "{name: ..., memory_gib: ..., compute_capability: ...}" in refused.value.hint


def test_a_size_no_card_of_that_name_has_is_refused_and_can_be_stated() -> None:
    with pytest.raises(InvalidInput, match="no RTX 4090 with 48 GB") as refused:
        named("RTX 4090 48GB")
    assert "memory_gib" in refused.value.hint
    modified = named("RTX 4090 48GB", memory_gib=47.40)
    assert modified.name == "RTX 4090"
    assert modified.total_bytes.value / GIB == pytest.approx(47.40)
    assert any("more than this GPU was seen to report" in note for note in modified.notes)


def test_where_is_put_before_the_message() -> None:
    with pytest.raises(InvalidInput) as refused:
        resolve_gpu(GpuRef(name="nonsense"), where="workload.yaml:2: gpu")
    assert str(refused.value).startswith("workload.yaml:2: gpu: the catalogue has no GPU 'nonsense'\nhint: ")


def test_a_number_in_front_is_the_count() -> None:
    assert named("2x H100").count == 2
    assert named("8 x RTX 4090").count == 8
    assert named("4xA100-80GB").count == 4
    assert named("L4", count=4).count == 4
    assert named("2x L4", count=2).count == 2
    with pytest.raises(InvalidInput, match="differ"):
        named("2x H100", count=4)
    with pytest.raises(InvalidInput, match="differ"):
        named("0x H100")
    with pytest.raises(InvalidInput, match="no number of GPUs"):
        named("H100", count=0)


# ---- MIG

SLICES = [
    ("H100 MIG 3g.40gb", 39.50, "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "OOM text on a 4g.40gb: 39.50"),
    ("H100 MIG 1g.10gb", 9.75, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "OOM text: 9.75"),
    ("A100-SXM4-40GB MIG 1g.10gb", 9.62, "NVIDIA A100-SXM4-40GB MIG 1g.10gb", "YOLO banner: 9856 MiB"),
    ("A100-SXM4-40GB MIG 3g.20gb", 19.62, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "OOM text: 19.62"),
    ("A100 80GB 3g.40gb", 39.25, "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "OOM text: 39.25"),
    ("H200 MIG 1g.18gb", 16.00, "NVIDIA H200 MIG 1g.18gb", "vLLM log: 16.00"),
    ("H200 MIG 2g.35gb", 32.50, "NVIDIA H200 MIG 2g.35gb", "PyTorch: 32.5"),
    ("B200 MIG 2g.45gb", 44.25, "NVIDIA B200 MIG 2g.45gb", "PyTorch: 44.25"),
    ("NVIDIA GH200 480GB MIG 2g.24gb", 23.00, "NVIDIA GH200 480GB MIG 2g.24gb", "deviceQuery: 24696061952 bytes"),
]


@pytest.mark.parametrize(("name", "gib", "device", "source"), SLICES)
def test_slices_have_the_memory_that_logs_print(name: str, gib: float, device: str, source: str) -> None:
    gpu = named(name)
    assert gpu.total_bytes.low / GIB <= gib <= gpu.total_bytes.high / GIB, source
    assert gpu.total_bytes.value / GIB == pytest.approx(gib, abs=0.006), source
    assert gpu.total_bytes.basis == "measured"
    assert gpu.device_name == device


@pytest.mark.parametrize(
    "name", ["H100 MIG 3g.40gb", "h100 mig-3g.40gb", "H100 (MIG 3g.40gb)", "H100 3g.40gb+me", "H100-3g.40gb",
             "MIG 3g.40gb H100", "H100 80GB HBM3 MIG 3g.40gb-me"],
)  # fmt: skip
def test_a_slice_is_found_however_it_is_written(name: str) -> None:
    assert named(name).name == "H100 SXM 80GB MIG 3g.40gb"


def test_a_slice_has_its_shares_of_the_gpu() -> None:
    whole, part = named("H100"), named("H100 MIG 3g.40gb")
    assert part.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 2)
    assert part.flops["fp8"] == pytest.approx(whole.flops["fp8"] * 60 / 132)
    assert part.nvlink_bytes_per_s is None
    assert any("one MIG slice only" in note for note in part.notes)


def test_a_slice_nobody_measured_is_estimated_below_its_even_share() -> None:
    whole, part = named("B300").total_bytes, named("B300 MIG 1g.34gb").total_bytes
    assert part.basis == "estimated"
    assert 0.90 * whole.low / 8 < part.low == part.value < part.high <= whole.high / 8 + 1


def test_slices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no MIG profile 9g\.1gb") as refused:
        named("H100 MIG 9g.1gb")
    assert "1g.10gb, 1g.20gb" in refused.value.hint
    with pytest.raises(InvalidInput, match="RTX 4090 has no MIG profile"):
        named("RTX 4090 MIG 1g.5gb")
    with pytest.raises(InvalidInput, match="compute instance"):
        named("H100 MIG 1c.3g.40gb")


# ---- what is stated


def test_stated_sizes_are_kept_with_the_band_of_their_digits() -> None:
    gpu = named("H100 80GB", memory_gib=79.19, free_gib=78.68, count=2, compute_capability=(9, 0))
    assert gpu.total_bytes.basis == gpu.free_bytes.basis == "measured"
    assert gpu.total_bytes.value == round(79.19 * GIB)
    assert (gpu.total_bytes.high - gpu.total_bytes.low) / GIB == pytest.approx(0.01)
    assert gpu.free_bytes.value == round(78.68 * GIB)
    assert gpu.count == 2
    assert not any("more than this GPU" in note for note in gpu.notes)


def test_free_memory_of_an_idle_card_fits_the_start_up_lines_of_vllm() -> None:
    lines = [("H100", 79.19, 78.68), ("H100", 79.19, 78.66), ("H200", 139.81, 139.21), ("B300", 267.69, 267.08),
             ("A100 40GB", 39.49, 39.00), ("RTX 6000 Ada", 47.37, 47.03), ("RTX 6000 Ada", 47.37, 46.99),
             ("RTX 3090", 23.56, 22.93), ("RTX 3090", 23.56, 23.05), ("L4", 22.16, 21.91),
             ("RTX 4090", 23.53, 23.08), ("RTX 5060 Ti 16GB", 15.51, 15.28)]  # fmt: skip
    for name, total, free in lines:
        band = named(name, memory_gib=total).free_bytes
        assert band.low / GIB <= free <= band.high / GIB, (name, total, free)


def test_more_than_was_ever_reported_is_kept_but_noted() -> None:
    gpu = named("H100", memory_gib=80)
    assert gpu.total_bytes.value == 80 * GIB
    assert any("more than this GPU was seen to report (79.10 to 79.25 GiB)" in note for note in gpu.notes)


def test_a_gpu_the_catalogue_lacks_can_be_stated() -> None:
    gpu = named("Acme 9000", memory_gib=40, compute_capability=(9, 0))
    assert (gpu.name, gpu.vendor, gpu.compute_capability) == ("Acme 9000", "nvidia", (9, 0))
    assert gpu.total_bytes.value == 40 * GIB
    assert gpu.total_bytes.basis == "measured"
    assert 39 * GIB < gpu.free_bytes.low < gpu.free_bytes.high < 40 * GIB
    assert gpu.bandwidth_bytes_per_s is None
    assert gpu.flops == {}
    with pytest.raises(InvalidInput) as refused:
        named("Acme 9000", memory_gib=40)
    assert "compute_capability is missing" in refused.value.hint


@pytest.mark.parametrize("name", ["AMD Instinct MI308X", "MI308X", "Radeon RX 9070"])
def test_an_amd_gpu_needs_no_compute_capability(name: str) -> None:
    gpu = named(name, memory_gib=100)
    assert (gpu.vendor, gpu.compute_capability) == ("amd", None)


def test_a_stated_compute_capability_is_taken_for_nvidia_only() -> None:
    assert named("RTX 4090", compute_capability=(8, 6)).compute_capability == (8, 6)
    gpu = named("MI300X", compute_capability=(9, 4))
    assert gpu.compute_capability is None
    assert any("not NVIDIA's" in note for note in gpu.notes)


def test_a_gpu_without_a_known_total_needs_one() -> None:
    with pytest.raises(InvalidInput, match="no memory total is known for B100"):
        named("B100")
    assert named("B100", memory_gib=178).compute_capability == (10, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0, 1e9, 0.001])
@pytest.mark.parametrize("key", ["memory_gib", "free_gib"])
def test_sizes_that_cannot_be_are_refused(key: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{key} .* is no size"):
        named("H100", **{key: value})


def test_more_free_than_there_is_is_refused() -> None:
    with pytest.raises(InvalidInput, match="free_gib 90 is more than the GPU has"):
        named("H100", free_gib=90)


def test_cards_that_windows_shows_otherwise_say_so() -> None:
    assert any("WSL CUDA reports 23.99 GiB" in note for note in named("RTX 4090").notes)
    assert any("ECC switched on it has 44.427 GiB" in note for note in named("RTX A6000").notes)


def test_the_cpu_can_be_stated_without_a_machine() -> None:
    nowhere = Machine(root=Path("/nonexistent"), env={}, load_nvml=lambda: None)
    gpu = resolve_gpu(GpuRef(name="cpu", memory_gib=32, free_gib=24), machine=nowhere)
    assert gpu.is_cpu
    assert gpu.total_bytes.value == 32 * GIB
    assert gpu.free_bytes.value == 24 * GIB
    with pytest.raises(InvalidInput, match="does not say how much memory"):
        resolve_gpu(GpuRef(name="cpu"), machine=nowhere)


# ---- properties

EMPTY = Machine(root=Path("/nonexistent"), env={}, load_nvml=lambda: None)
names = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from([*(s for s, _ in TABLE), "MIG", "1g.10gb", "80GB", "2x", "-", " ", "GPU"]), max_size=4
    ).map(" ".join),
)


@settings(max_examples=400, deadline=None)
@given(
    names,
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.tuples(st.integers(1, 20), st.integers(0, 9))),
    st.integers(-3, 100),
)
def test_nothing_but_a_gpu_or_invalid_input(
    name: str, memory: float | None, free: float | None, capability: tuple[int, int] | None, count: int
) -> None:
    ref = GpuRef(name=name, memory_gib=memory, free_gib=free, compute_capability=capability, count=count)
    try:
        gpu = resolve_gpu(ref, machine=EMPTY)
    except InvalidInput:
        return
    assert gpu.total_bytes.low > 0
    assert 0 <= gpu.free_bytes.low <= gpu.free_bytes.value
    assert gpu.count >= 1
    assert (gpu.compute_capability is not None) == (gpu.vendor == "nvidia")


@given(st.sampled_from(TABLE), st.randoms(use_true_random=False))
def test_case_and_blanks_never_matter(entry: tuple[str, str], random: Any) -> None:
    spelling, _ = entry
    mixed = "".join(random.choice((c.lower(), c.upper())) for c in spelling)
    blanks = mixed.replace(" ", random.choice(("  ", "_", " ")))
    assert named(blanks) == named(spelling)


def test_an_underscore_before_the_unit_is_a_blank() -> None:
    assert named("RTX_4090_24_GiB") == named("RTX 4090 24 GiB")


# ---- cost


def test_the_usual_name_reads_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.read_text

    def counting(self: Path, *args: Any, **kwargs: Any) -> str:
        read.append(self.name)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", counting)
    load_row.cache_clear()
    named("RTX 4090")
    assert read == ["rtx-4090.yaml"]
    load_row.cache_clear()
    named("A100-80GB")
    assert load_row.cache_info().misses <= 4  # files parsed; the others are only looked through


def test_adding_a_gpu_is_adding_a_file(tmp_path: Path) -> None:
    shutil.copytree(bundled_folder(), tmp_path / "gpus")
    (tmp_path / "gpus" / "acme-9000.yaml").write_text(
        "name: Acme 9000\ndevice_name: NVIDIA Acme 9000 HBM9\naliases: [The Beast]\nvendor: nvidia\narch: Acme\n"
        'compute_capability: "13.0"\nmemory: {gib: 500, low: 499, high: 501, basis: measured, source: a log}\n'
    )
    catalogue = Catalogue(tmp_path / "gpus")
    for name in ("acme 9000", "the beast", "NVIDIA Acme 9000 HBM9"):
        assert resolve_gpu(GpuRef(name=name), catalogue=catalogue).name == "Acme 9000"
    assert "acme-9000" in {summary.id for summary in list_gpus(catalogue)}


HEAD = "name: X\ndevice_name: X\nvendor: nvidia\narch: Y\n"


@pytest.mark.parametrize(
    "text",
    [
        "- a list\n",
        "name: X\n",
        f"{HEAD}surprise: 1\n",
        f"{HEAD}memory: {{gib: 5, low: 6, high: 7, basis: measured, source: s}}\n",
        f"{HEAD}memory: {{gib: 5, low: 5, high: 5, basis: guessed, source: s}}\n",
        f"{HEAD}mig: {{source: s, slices: {{1g.1gb: {{memory: 9/8, sms: 1/7, basis: measured}}}}}}\n",
    ],
)
def test_a_broken_row_names_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.yaml"):
        load_row(path)


def test_the_listing_is_data_of_every_row() -> None:
    listing = list_gpus()
    assert len(listing) == len(ROWS) >= 85
    h100 = next(summary for summary in listing if summary.id == "h100-80gb")
    assert (h100.memory_gib, h100.compute_capability, h100.bandwidth_gb_per_s) == (79.11, "9.0", 3350)
    assert (h100.fp16_tflops, h100.fp8_tflops, h100.link_gb_per_s) == (989.5, 1979, 900)
    assert h100.mig[0] == "1g.10gb"
    assert [s.vendor for s in listing] == sorted(s.vendor for s in listing)
    assert next(s for s in listing if s.id == "b100").memory_gib is None


def test_rows_without_yaml_speedups_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    path = bundled_folder() / "h100-80gb.yaml"
    fast = load_row(path)
    monkeypatch.delattr(yaml, "CSafeLoader")
    load_row.cache_clear()
    assert load_row(path) == fast
    assert gpu_rows.load_row.cache_info().misses == 1


def test_the_row_and_the_names_that_the_docs_show_are_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text(encoding="utf-8")
    naming, row = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "acme-9000.yaml").write_text(row, encoding="utf-8")
    catalogue = Catalogue(tmp_path)
    assert resolve_gpu(GpuRef(name="acme 9000 MIG 1g.62gb"), catalogue=catalogue).total_bytes.value == 61.5 * GIB
    assert resolve_gpu(GpuRef(name="Acme"), catalogue=catalogue).flops == {"bf16": 5e15, "fp8": 1e16}
    plain = re.findall(r"^gpu: ([^{#]+?) +#", naming, re.MULTILINE)
    assert len(plain) == 6
    for name in set(plain) - {"auto", "cpu"}:
        named(name)
