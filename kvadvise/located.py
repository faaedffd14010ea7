"""Where a plan's model is when the engine is not started beside the workload file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from advisor.plan_types import Plan


def located(plan: Plan, base_dir: Path) -> Plan:
    """The plan with the model's directory, named from the workload's own place `base_dir`, as seen from anywhere.

    A hub id, a directory that is not there, and every one where the engine starts in `base_dir` stay as they are.
    """
    if len(plan.argv) < 3 or base_dir.resolve() == Path.cwd():
        return plan
    model = Path(plan.argv[2])
    if model.is_absolute() or not (base_dir / model).is_dir():
        return plan
    return msgspec.structs.replace(plan, argv=(*plan.argv[:2], str((base_dir / model).resolve()), *plan.argv[3:]))
