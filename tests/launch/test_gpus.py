"""Which GPU a start gets, and what is said of its memory and of those who hold it."""

from __future__ import annotations

import os

import pytest

from advisor.estimate import exact
from advisor.units import GIB, MIB
from launch.check_gpu import check_gpus
from launch.gpu_choice import GpuChoice, choose_gpus
from launch.gpu_state import GpuState, read_with, used_bytes
from tests.launch.machines import FakeNvml, gpu


@pytest.mark.parametrize(
    ("gpus", "wanted", "env", "avoid", "expected"),
    [
        pytest.param([gpu(0, free=2), gpu(1), gpu(2), gpu(3)], 1, {}, (), "1", id="not-the-busy-one"),
        pytest.param([gpu(0, free=2), gpu(1), gpu(2, free=20), gpu(3)], 2, {}, (), "1,3", id="two-with-most-free"),
        pytest.param([gpu(0), gpu(1), gpu(2)], 1, {"CUDA_VISIBLE_DEVICES": "2"}, (), "2", id="the-user-chose"),
        pytest.param([gpu(0), gpu(1)], 1, {"CUDA_VISIBLE_DEVICES": "GPU-0001"}, (), "1", id="by-uuid"),
        pytest.param([gpu(0), gpu(1)], 1, {"CUDA_VISIBLE_DEVICES": "1,7,0"}, (), "1", id="up-to-what-is-not-there"),
        pytest.param([gpu(0), gpu(1)], 1, {}, ("GPU-0000",), "1", id="not-where-another-loads"),
        pytest.param([gpu(0), gpu(1)], 2, {}, ("GPU-0000",), "0,1", id="unless-needed"),
        pytest.param(
            [gpu(0, name="A", total=80, free=79), gpu(1, name="B"), gpu(2, name="B")], 2, {}, (), "1,2", id="of-a-kind"
        ),
        pytest.param([gpu(0, name="A", total=80, free=79), gpu(1, name="B")], 2, {}, (), "0,1", id="unlike-if-need-be"),
        pytest.param(
            [gpu(0, name="A", total=80, free=79), gpu(1, name="B")], 1, {}, (), "0", id="the-larger-of-two-kinds"
        ),
    ],
)
def test_the_choice(
    gpus: list[GpuState], wanted: int, env: dict[str, str], avoid: tuple[str, ...], expected: str
) -> None:
    choice = choose_gpus(gpus, wanted, env, avoid=avoid)
    assert choice.env == {"CUDA_VISIBLE_DEVICES": expected, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_slice_is_named_by_its_uuid() -> None:
    assert choose_gpus([gpu(0, is_slice=True)], 1, {}).env["CUDA_VISIBLE_DEVICES"] == "MIG-0000"


def test_nothing_to_choose_from() -> None:
    assert choose_gpus([], 1, {}) == GpuChoice(gpus=())
    assert choose_gpus([gpu(0)], 1, {"CUDA_VISIBLE_DEVICES": ""}) == GpuChoice(gpus=())


@pytest.mark.parametrize(
    ("seen", "share", "expected"),
    [
        pytest.param(gpu(), 0.9, [], id="idle"),
        pytest.param(
            # 130 MB short every time: 30.12 of 31.84 GiB for CUDA, 0.95 asks for 30.25
            gpu(total=32.2, kept_back=0.36, free=30.32),
            0.95,
            [("utilization-over-free", "error", "0.91")],
            id="wsl-holds-some",
        ),
        pytest.param(
            gpu(free=22.2), 0.92, [("utilization-over-free", "warning", "0.89")], id="may-be-too-little"
        ),
        pytest.param(
            gpu(free=3.0, processes=((77, "VLLM::EngineCor", 20.4),)),
            0.9,
            [("engine-on-gpu", "error", "kill 77")],
            id="an-orphan",
        ),
        pytest.param(
            gpu(free=13.0, processes=((77, "VLLM::EngineCor", 9.0), (5, "Xorg", None))),
            0.4,
            [("engine-on-gpu", "warning", "steady")],
            id="a-neighbour-with-room",
        ),
        pytest.param(
            gpu(free=3.0, processes=((5, "python", 20.0),)), 0.9, [("utilization-over-free", "error", "free the GPU")],
            id="another-program",
        ),
        pytest.param(gpu(free=0.1), 0.9, [("utilization-over-free", "error", "choose another")], id="full"),
        pytest.param(
            gpu(is_slice=True, total=19.5, free=19.4, kept_back=None), 0.9, [("mig-slice", "warning", "MIG-")], id="mig"
        ),
    ],
)  # fmt: skip
def test_free_memory(seen: GpuState, share: float, expected: list[tuple[str, str, str]]) -> None:
    found = check_gpus(GpuChoice(gpus=(seen,)), n_gpus=1, utilization=share, total=None, n_seen=1)
    assert [(f.code, f.severity) for f in found] == [(code, severity) for code, severity, _ in expected]
    for finding, (_, _, says) in zip(found, expected, strict=True):
        assert says in finding.remedy
        for process in seen.processes if finding.code != "mig-slice" else ():
            if process.is_engine:
                assert f"pid {process.pid}" in finding.message
                assert "GiB" in finding.message


def test_the_plan_s_total_stands_where_nvml_does_not_say_what_is_kept_back() -> None:
    seen = gpu(total=24.0, free=22.6, kept_back=None)
    choice = GpuChoice(gpus=(seen,))
    told = check_gpus(choice, n_gpus=1, utilization=0.94, total=exact(round(23.64 * GIB)), n_seen=1)
    assert "23.64 GiB" in told[0].message
    other = check_gpus(choice, n_gpus=1, utilization=0.94, total=exact(80 * GIB), n_seen=1)
    assert "80.00" not in other[0].message


@pytest.mark.parametrize(("n_seen", "code"), [(0, "gpu-absent"), (1, "gpu-count")])
def test_too_few_gpus(n_seen: int, code: str) -> None:
    choice = GpuChoice(gpus=tuple(gpu(i) for i in range(n_seen)))
    found = check_gpus(choice, n_gpus=2, utilization=0.9, total=None, n_seen=n_seen)
    assert [(f.code, f.severity) for f in found] == [(code, "error")]


def card(**more: object) -> dict[str, object]:
    return {"uuid": "GPU-1", "name": "RTX 4090", "total": 24 * GIB, "free": 20 * GIB} | more


def test_nvml_is_read() -> None:
    nvml = FakeNvml(
        card(reserved=350 * MIB, processes=[(os.getpid(), 2 * GIB), (1 << 22, None)]),
        card(uuid="GPU-2", is_old=True),
        {"uuid": "GPU-3", "name": "GB10"},
        {"name": "A100", "uuid": "GPU-4", "slices": [card(uuid="MIG-1"), card(uuid="MIG-2")]},
    )
    first, old, *slices = read_with(nvml)
    assert first.kept_back_bytes == 350 * MIB
    assert first.processes[0].used_bytes == 2 * GIB
    assert first.processes[1].name == "not visible from here"
    assert not first.processes[0].is_engine
    assert old.kept_back_bytes is None
    assert [(s.uuid, s.is_slice, s.index) for s in slices] == [("MIG-1", True, 3), ("MIG-2", True, 3)]
    assert nvml.was_shut
    assert used_bytes(lambda: [first], ["GPU-1"])() == {"GPU-1": 4 * GIB}


def test_no_driver_is_no_gpu() -> None:
    assert read_with(FakeNvml(works=False)) == []
