"""The plan as shell text, one command or environment variables; for plans that are `launchable` only."""

from __future__ import annotations

import shlex
from typing import Any

from advisor.plan_types import Plan


def launchable(plan: Plan) -> bool:
    """Whether the plan's flags may be handed to something that starts them unseen."""
    return plan.outcome in ("fits", "fits_with_loss")


def argv_line(plan: Plan) -> str:
    """The command on one line, quoted for a POSIX shell."""
    return shlex.join(plan.argv)


def environment(plan: Plan) -> str:
    """Assignments for a shell to source.

    `MODEL_NAME` and one variable a flag, the flag's name in capitals, as worker images read them (Runpod's
    worker-vllm documents this rule); `VLLM_ARGS` holds everything after the model in one string, for an
    entry point of one's own.
    """
    _, _, model, *arguments = plan.argv
    lines = [f"MODEL_NAME={shlex.quote(model)}"]
    lines += [f"{name.upper()}={shlex.quote(_plain(value))}" for name, value in plan.flags.items() if value is not None]
    lines.append(f"VLLM_ARGS={shlex.quote(shlex.join(arguments))}")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        import json

        return json.dumps(value)
    return str(value)
