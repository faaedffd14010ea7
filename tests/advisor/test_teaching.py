"""The sums of advisor.teaching, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import teaching
from advisor.errors import InvalidInput
from advisor.units import GIB

FORTY_LAYERS = {"layers": 40, "kv_heads": 8, "head_dim": 128, "bytes_per_value": 2}


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "per_token"),
    [
        pytest.param(32, 32, 128, 524_288, id="Llama-2-7B"),
        pytest.param(32, 8, 128, 131_072, id="Llama-3-8B"),
        pytest.param(28, 4, 128, 57_344, id="Qwen2.5-7B"),
        pytest.param(64, 8, 128, 262_144, id="Qwen2.5-32B"),
        pytest.param(40, 8, 128, 163_840, id="40-layers"),
    ],
)
def test_bytes_per_token(layers: int, kv_heads: int, head_dim: int, per_token: int) -> None:
    assert teaching.kv_bytes_per_token(layers, kv_heads, head_dim, 2) == per_token


def test_one_byte_values_halve_it() -> None:
    assert teaching.kv_bytes_per_token(32, 8, 128, 1) == 65_536


@pytest.mark.parametrize(
    ("requests", "tokens", "kv_heads", "n_bytes"),
    [
        pytest.param(1, 4096, 8, 671_088_640, id="one-request"),
        pytest.param(6, 4096, 8, 4_026_531_840, id="six"),
        pytest.param(6, 8192, 8, 8_053_063_680, id="twice-the-length"),
        pytest.param(6, 4096, 40, 20_132_659_200, id="no-grouped-query-attention"),
    ],
)
def test_bytes_of_requests(requests: int, tokens: int, kv_heads: int, n_bytes: int) -> None:
    shape = {**FORTY_LAYERS, "kv_heads": kv_heads}
    assert teaching.kv_bytes_for_requests(requests, tokens, **shape) == n_bytes
    assert teaching.kv_bytes_per_request(tokens, **shape) * requests == n_bytes


def test_twelve_requests_fit_beside_the_rest() -> None:
    admitted = teaching.requests_admitted(
        24 * GIB,
        12 * GIB,
        3 * GIB,
        3 * GIB,
        tokens=4096,
        layers=32,
        kv_heads=8,
        head_dim=128,
        bytes_per_value=2,
    )
    assert admitted == 12


def test_nothing_fits_where_nothing_is_left() -> None:
    admitted = teaching.requests_admitted(
        24 * GIB, 23 * GIB, 3 * GIB, 3 * GIB, tokens=1, layers=1, kv_heads=1, head_dim=1, bytes_per_value=1
    )
    assert admitted == 0


@pytest.mark.parametrize("bad", [True, False, 0, -1, 2.0, 2.5, "8", None, float("nan")], ids=repr)
@pytest.mark.parametrize("name", ["layers", "kv_heads", "head_dim", "bytes_per_value"])
def test_only_positive_whole_numbers(name: str, bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        teaching.kv_bytes_per_token(**{**FORTY_LAYERS, name: bad})
    assert caught.value.where == name


@pytest.mark.parametrize("bad", [True, 0, -4096, 4096.0])
def test_only_positive_whole_tokens_and_sizes(bad: Any) -> None:
    with pytest.raises(InvalidInput):
        teaching.kv_bytes_per_request(bad, **FORTY_LAYERS)
    with pytest.raises(InvalidInput):
        teaching.kv_bytes_for_requests(bad, 4096, **FORTY_LAYERS)
    with pytest.raises(InvalidInput):
        teaching.kv_bytes_left(24 * GIB, bad, GIB, GIB)


@given(st.integers(1, 200), st.integers(1, 128), st.integers(1, 512), st.integers(1, 4), st.integers(1, 10**6))
def test_linear_in_every_factor(layers: int, kv_heads: int, head_dim: int, size: int, tokens: int) -> None:
    one = teaching.kv_bytes_per_request(tokens, layers, kv_heads, head_dim, size)
    assert teaching.kv_bytes_per_request(2 * tokens, layers, kv_heads, head_dim, size) == 2 * one
    assert teaching.kv_bytes_per_request(tokens, 2 * layers, kv_heads, head_dim, size) == 2 * one
    assert teaching.kv_bytes_per_request(tokens, layers, 2 * kv_heads, head_dim, size) == 2 * one
