"""The forms that machines read: argv, environment, vllm-config. Each is read back by what would read it."""

from __future__ import annotations

import shlex
import subprocess

import msgspec
import pytest
import yaml

from advisor.plan_types import Plan
from kvadvise.printing.shell import argv_line, environment, launchable
from kvadvise.printing.vllm_config import vllm_config
from tests.kvadvise import plans

AWKWARD = msgspec.structs.replace(
    plans.FITS,
    flags={
        **plans.FLAGS,
        "compilation_config": {"mode": 3, "name": "it's"},
        "quantization": None,
        "enforce_eager": True,
    },
    argv=(*plans.argv("./my models/x", dict(plans.FLAGS)), "--compilation-config", '{"mode": 3, "name": "it\'s"}'),
)


@pytest.mark.parametrize("plan", [plans.FITS, AWKWARD], ids=["plain", "awkward"])
def test_argv_survives_a_shell(plan: Plan) -> None:
    line = argv_line(plan)
    assert "\n" not in line
    assert tuple(shlex.split(line)) == plan.argv


@pytest.mark.parametrize("plan", [plans.FITS, AWKWARD], ids=["plain", "awkward"])
def test_environment_can_be_sourced(plan: Plan) -> None:
    script = f'{environment(plan)}\neval "set -- $VLLM_ARGS"\nprintf \'%s\\n\' "$MODEL_NAME" "$@"\n'
    out = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, check=True).stdout
    assert tuple(out.splitlines()) == plan.argv[2:]


def test_environment_has_one_variable_a_flag() -> None:
    names = [line.partition("=")[0] for line in environment(AWKWARD).splitlines()]
    assert names[0] == "MODEL_NAME"
    assert names[-1] == "VLLM_ARGS"
    assert set(names[1:-1]) == {name.upper() for name in AWKWARD.flags if name != "quantization"}
    assert "ENFORCE_EAGER=true" in environment(AWKWARD)


@pytest.mark.parametrize("plan", [plans.FITS, AWKWARD, plans.FITS_WITH_LOSS], ids=["plain", "awkward", "loss"])
def test_config_holds_model_and_flags(plan: Plan) -> None:
    text = vllm_config(plan)
    document = yaml.safe_load(text)
    assert document.pop("model") == plan.argv[2]
    set_flags = {name: value for name, value in plan.flags.items() if value is not None}
    assert {key.replace("-", "_"): value for key, value in document.items()} == set_flags
    assert text.splitlines()[0] == f"# kvadvise 0.1.0, plan {plan.inputs_sha256}: {plan.outcome}"


def test_only_plans_that_fit_are_launchable() -> None:
    assert [name for name, plan in plans.ALL.items() if launchable(plan)] == ["fits", "fits_with_loss"]
