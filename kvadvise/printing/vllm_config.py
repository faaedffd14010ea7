"""The plan as the YAML file that `vllm serve --config FILE` reads.

vLLM takes each key as a long flag without its dashes (vLLM 0.32, vllm/utils/argparse_utils.py,
load_config_file): true becomes the flag, false its `--no-` form, a list several values, a mapping JSON.
"""

from __future__ import annotations

from typing import Any

from advisor.plan_types import Plan


def vllm_config(plan: Plan) -> str:
    """The file's text, without a line end at the end; its first lines say which plan it is."""
    import yaml

    document: dict[str, Any] = {"model": plan.argv[2]}
    document |= {name.replace("_", "-"): value for name, value in plan.flags.items() if value is not None}
    body = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return "\n".join([*_header(plan), body.rstrip("\n")])


def _header(plan: Plan) -> list[str]:
    lines = [f"# kvadvise {plan.kvadvise_version}, plan {plan.inputs_sha256}: {plan.outcome}"]
    if plan.subject is not None:
        subject = plan.subject
        lines.append(f"# made for {subject.gpu_count} x {subject.gpu}, vLLM {subject.vllm_version}")
    lines.append("# save it as NAME.yaml and start it with: vllm serve --config NAME.yaml")
    return lines
