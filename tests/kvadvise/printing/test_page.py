"""Pages, Markdown and explanations against golden files, and what holds for every page."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from advisor.compare import diff_plans
from advisor.explain import explain
from advisor.plan_types import Plan
from kvadvise.printing.difference import difference
from kvadvise.printing.explanation import explanation
from kvadvise.printing.look import Look
from kvadvise.printing.markdown import markdown
from kvadvise.printing.page import page
from tests.kvadvise import plans

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
CASES = [pytest.param(name, plan, id=name) for name, plan in plans.ALL.items()]


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_page(name: str, plan: Plan, golden: Callable[[str, str], None]) -> None:
    golden(f"page/{name}.txt", page(plan, Look(width=80)) + "\n")


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_markdown(name: str, plan: Plan, golden: Callable[[str, str], None]) -> None:
    golden(f"markdown/{name}.md", markdown(plan) + "\n")


@pytest.mark.parametrize(
    "flag", ["--max-num-seqs", "max_num_batched_tokens", "max-model-len", "block_size", "kv_cache_dtype"]
)
def test_explanation(flag: str, golden: Callable[[str, str], None]) -> None:
    text = explanation(explain(plans.FITS, flag), plans.FITS, Look(width=80))
    golden(f"explain/{flag.strip('-').replace('-', '_')}.txt", text + "\n")


def test_difference(golden: Callable[[str, str], None]) -> None:
    pairs = {
        "same": (plans.FITS, plans.FITS),
        "worse": (plans.FITS, plans.DOES_NOT_FIT),
        "lossy": (plans.DOES_NOT_FIT, plans.FITS_WITH_LOSS),
        "gone": (plans.FITS, plans.INVALID),
    }
    for name, (before, after) in pairs.items():
        found = diff_plans(before, after)
        text = difference(before, after, found, ("a.yaml", "b.yaml"), Look(width=80))
        golden(f"diff/{name}.txt", text + "\n")


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize(("name", "plan"), CASES)
def test_every_line_keeps_inside_the_width(name: str, plan: Plan, width: int, unicode: bool) -> None:
    lines = page(plan, Look(width=width, unicode=unicode)).splitlines()
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_colour_changes_no_word(name: str, plan: Plan) -> None:
    coloured = page(plan, Look(width=80, colour=True))
    assert "\x1b[" in coloured
    assert ESCAPE.sub("", coloured) == page(plan, Look(width=80))


def test_without_unicode_everything_is_ascii() -> None:
    assert all(page(plan, Look(width=80)).isascii() for plan in plans.ALL.values())


def test_verdict_and_flags_come_first() -> None:
    text = page(plans.FITS, Look(width=80))
    assert text.splitlines()[0].startswith("FITS  Qwen/Qwen2.5-7B-Instruct on 1 x RTX 4090")
    assert "vllm serve" in text.split("\n\n")[1]


def test_errors_come_before_the_ledger_they_spoil() -> None:
    text = page(plans.DOES_NOT_FIT, Look(width=80))
    assert text.index("target-not-met") < text.index("Memory of one device") < text.index("Findings")


def test_text_from_a_file_cannot_break_markdown() -> None:
    finding = msgspec.structs.replace(plans.INVALID.findings[0], message="a|b\n# <script>")
    text = markdown(msgspec.structs.replace(plans.INVALID, findings=(finding,)))
    assert "a\\|b # &lt;script>" in text
