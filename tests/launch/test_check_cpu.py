"""Before a start on the CPU: a variable that changes the plan's pool, and a memory node for each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.units import GIB
from launch.check_cpu import check_cpu
from tests.launch.machines import host

SPACE = "VLLM_CPU_KVCACHE_SPACE"


@pytest.mark.parametrize(
    ("env", "kv_cache_bytes", "says"),
    [
        pytest.param({}, GIB, "", id="not-set"),
        pytest.param({SPACE: ""}, GIB, "", id="empty"),
        pytest.param({SPACE: "4"}, None, "", id="nothing-planned"),
        pytest.param({SPACE: "4"}, 4 * GIB, "", id="the-same"),
        pytest.param({SPACE: "4"}, GIB, "to 4 GiB, whatever the command says, and the plan has 1.00 GiB", id="other"),
        pytest.param({SPACE: "4.5"}, GIB, "'4.5', which is no whole number", id="no-number"),
    ],
)
def test_a_variable_does_not_change_the_pool_unseen(
    env: dict[str, str], kv_cache_bytes: int | None, says: str, tmp_path: Path
) -> None:
    found = check_cpu(host(tmp_path, env), kv_cache_bytes=kv_cache_bytes, n_ranks=1)
    assert [finding.code for finding in found] == (["pool-overridden"] if says else [])
    assert not says or says in found[0].message


@pytest.mark.parametrize(
    ("allowed", "n_ranks", "env", "says"),
    [
        pytest.param("0", 1, {}, "", id="one-rank"),
        pytest.param("0-1", 2, {}, "", id="a-node-each"),
        pytest.param("0,2", 2, {}, "", id="two-of-three"),
        pytest.param("0", 2, {}, "may use 1", id="one-node"),
        pytest.param("0-1,4", 4, {}, "may use 3", id="three-nodes"),
        pytest.param("0", 2, {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}, "", id="bound-by-hand"),
        pytest.param("0", 2, {"VLLM_CPU_SIM_MULTI_NUMA": "1"}, "", id="simulated"),
        pytest.param("none", 2, {}, "", id="not-understood"),
    ],
)
def test_each_rank_has_a_memory_node(
    allowed: str, n_ranks: int, env: dict[str, str], says: str, tmp_path: Path
) -> None:
    machine = host(tmp_path, env, files={"/proc/self/status": f"Name:\tx\nMems_allowed_list:\t{allowed}\n"})
    found = check_cpu(machine, kv_cache_bytes=None, n_ranks=n_ranks)
    assert [finding.code for finding in found] == (["cpu-numa-nodes"] if says else [])
    assert not says or says in found[0].message


def test_a_machine_that_does_not_say_is_left_alone(tmp_path: Path) -> None:
    assert check_cpu(host(tmp_path), kv_cache_bytes=GIB, n_ranks=8) == []
