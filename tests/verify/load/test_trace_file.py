"""Traces in the shapes they are published in; every row is kept or counted, and a wrong one is named by its line."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from verify.load import trace_lines
from verify.load.trace_file import read_trace

SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).resolve().parents[4] / "shared"))

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:15:51.0000000,0,5"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.049000+00:00,3,4\n2024-05-12 00:00:01+00:00,5,6\n"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,9,0,9,API log\n"
)
BURST_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,12,0.7,ChatGPT,472,18,490,Conversation log\n6,12,0.1,GPT-4,30,8,38,API log\n"
)
SHAREGPT = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n290,905,1195,0.32\n"
LOG = "\n".join(
    json.dumps(record)
    for record in (
        {"ts": 10.5, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "user": "u",
         "usage": {"prompt_tokens": 12, "completion_tokens": 9}},
        {"ts": 12.0, "request": {"messages": [{"role": "user", "content": "a"}], "user": "me"},
         "response": {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}},
        {"ts": 13.0, "body": json.dumps({"messages": [{"role": "user", "content": "b"}], "max_completion_tokens": 3}),
         "response": {"status_code": 200, "body": {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}}},
        {"ts": 14.0, "body": {"prompt": "text"}, "usage": {"prompt_tokens": 8, "completion_tokens": 4}},
        {"ts": 15.0, "messages": [{"role": "user", "content": "c"}], "prompt_tokens": 6, "completion_tokens": 2},
        {"ts": 16.0, "body": {"messages": []}, "response": {"status_code": 500, "body": "no"}},
        {"ts": 17.0, "body": {"messages": []}, "response": {}},
    )
)  # fmt: skip
BAILIAN = "\n".join(
    json.dumps({"chat_id": i, "parent_chat_id": -1, "timestamp": 61.114 + i, "input_length": 20, "output_length": 5,
                "type": "text", "turn": 1, "hash_ids": [1, 2 + i]})
    for i in range(2)
)  # fmt: skip

Row = tuple[int, int, float | None]


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "rows", "dropped"),
    [
        ("azure.csv", AZURE, [(374, 44, 0.0), (396, 109, 4.314579)], {"no prompt tokens": 1}),
        ("azure.csv", AZURE_2024, [(3, 4, 0.0), (5, 6, 0.951)], {}),
        ("burst.csv", BURST, [(472, 18, 0.0)], {"no answer tokens": 1}),
        ("burst3.csv", BURST_3, [(472, 18, 0.0), (30, 8, 1.0)], {}),
        ("lengths.csv", SHAREGPT, [(74, 918, None), (290, 905, None)], {}),
        ("own.csv", "prompt_tokens,output_tokens,timestamp\n7,8,100\n5,6,99.5\n", [(5, 6, 0.0), (7, 8, 0.5)], {}),
        ("own.csv", "prompt_tokens;output_tokens;ts\n7;8;1\n5;6;\n", [(7, 8, 0.0)], {"no time": 1}),
        ("own.txt", "\n ISL,OSL,arrival time (ms)\n7,8,1500\n\n5,6,2500\n", [(7, 8, 0.0), (5, 6, 1.0)], {}),
        ("own.csv", "prompt_tokens,output_tokens,created\n7,8,1700000000123\n5,6,1700000000623\n",
         [(7, 8, 0.0), (5, 6, 0.5)], {}),
        ("ms.jsonl", '{"timestamp_ms": 1500, "input_len": 3, "output_len": 4}\n\n', [(3, 4, 0.0)], {}),
        ("some.jsonl", '{"prompt_tokens": 3, "output_tokens": 4}\n{"prompt_tokens": 3, "output_tokens": 4, "ts": 1}\n',
         [(3, 4, 0.0)], {"no time": 1}),
        ("log.jsonl", LOG, [(12, 9, 0.0), (5, 1, 1.5), (7, 2, 2.5), (8, 4, 3.5), (6, 2, 4.5)],
         {"answered with an error": 1, "no usage: it failed or was not counted": 1}),
        ("bom.csv", "\ufeffprompt_tokens, output_tokens\n7,8\n", [(7, 8, None)], {}),
        ("qwen.jsonl", BAILIAN, [(20, 5, 0.0), (20, 5, 1.0)], {}),
    ],
)  # fmt: skip
def test_published_shapes_are_read(
    tmp_path: Path, name: str, text: str, rows: list[Row], dropped: dict[str, int]
) -> None:
    trace = read_trace(write(tmp_path, name, text))
    found = [(r.prompt_tokens, r.output_tokens, None if r.at_s is None else pytest.approx(r.at_s)) for r in trace.rows]
    assert found == rows
    assert trace.dropped == dropped
    assert trace.read == len(trace.rows) + sum(trace.dropped.values())


def test_a_log_of_requests_gives_them_back(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "log.jsonl", LOG))
    bodies = [None if row.body is None else json.loads(row.body) for row in trace.rows]
    assert bodies == [
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
        {"messages": [{"role": "user", "content": "b"}], "max_completion_tokens": 3},
        None,
        {"messages": [{"role": "user", "content": "c"}], "max_tokens": 2},
    ]
    notes = " ".join(trace.notes)
    assert "not sent with recorded requests: user" in notes
    assert "without max_tokens are sent with the length of their recorded answer" in notes
    assert "only their lengths count" in notes


def test_compressed_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"  # known by its content, whatever its name
    path.write_bytes(gzip.compress(AZURE.encode()))
    assert len(read_trace(path).rows) == 2


def mooncake(n: int, length: int, blocks: int) -> str:
    return "\n".join(
        json.dumps({"timestamp": 3000 * (i // 4), "input_length": length, "output_length": 5,
                    "hash_ids": list(range(blocks))})
        for i in range(n)
    )  # fmt: skip


def test_a_coarse_clock_is_seen(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "m.jsonl", mooncake(12, 700, 2)))
    assert trace.step_s == 3.0
    assert [r.at_s for r in trace.rows[3:5]] == [0.0, 3.0]
    assert trace.rows[0].block_tokens == 512


@pytest.mark.parametrize(
    ("length", "blocks", "size"), [(700, 2, 512), (512, 1, 512), (30, 2, 16), (6758, 14, 512), (4096, 256, 16)]
)
def test_the_block_size_follows_from_the_ids(tmp_path: Path, length: int, blocks: int, size: int) -> None:
    assert read_trace(write(tmp_path, "m.jsonl", mooncake(1, length, blocks))).rows[0].block_tokens == size


def test_one_block_size_holds_for_all_rows(tmp_path: Path) -> None:
    short, long = mooncake(1, 10, 1), mooncake(1, 30, 2)
    assert {r.block_tokens for r in read_trace(write(tmp_path, "m.jsonl", f"{short}\n{long}")).rows} == {16}
    with pytest.raises(InvalidInput, match=r"m.jsonl:2: hash_ids has 2 blocks of 16 tokens"):
        read_trace(write(tmp_path, "m.jsonl", f"{long}\n{mooncake(1, 700, 2)}"))


def test_a_block_size_may_be_stated(tmp_path: Path) -> None:
    line = '{"input_length": 100, "output_length": 1, "block_size": 64, "hash_ids": ["a", "b"]}'
    (row,) = read_trace(write(tmp_path, "m.jsonl", line)).rows
    assert (row.block_tokens, row.blocks) == (64, ("a", "b"))


def test_a_long_trace_is_not_read_to_its_end(tmp_path: Path) -> None:
    text = "prompt_tokens,output_tokens\n" + "7,8\n" * 50 + "broken\n"
    trace = read_trace(write(tmp_path, "a.csv", text), most_rows=20)
    assert (len(trace.rows), trace.read) == (20, 20)
    assert trace.notes == ("only its first 20 rows were read",)


def test_times_that_fall_are_put_in_order_and_said(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "a.csv", "prompt_tokens,output_tokens,ts\n1,1,9\n2,1,4\n3,1,9\n"))
    assert [r.prompt_tokens for r in trace.rows] == [2, 1, 3], "equal times keep their order"
    assert any("put in their order" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.jsonl", mooncake(2, 2000, 2), "m.jsonl:1: hash_ids has 2 blocks of 512 or 16 tokens, which hold at most 1"),
        ("m.jsonl", mooncake(1, 500, 9), "which hold another number of tokens; the prompt has 500"),
        ("m.jsonl", '{"input_length": 9, "output_length": 1, "hash_ids": "x"}', "hash_ids is no list of ids"),
        ("a.csv", "a,b\n1,2\n", "a.csv:1: no column for the prompt's tokens among a, b"),
        ("a.csv", "prompt_tokens,b\n1,2\n", "no column for the answer's tokens"),
        ("a.csv", "prompt_tokens,output_tokens\n1,x\n", "a.csv:2: output_tokens is 'x'"),
        ("a.csv", "prompt_tokens,output_tokens\n1,2\n1.5,2\n", "a.csv:3: prompt_tokens is '1.5'"),
        ("a.csv", "prompt_tokens,output_tokens\n1,2,3\n", "a.csv:2: has 3 columns, the header has 2"),
        ("a.csv", "prompt_tokens,output_tokens,time\n1,2,noon\n", "a.csv:2: time is 'noon'"),
        ("a.csv", "prompt_tokens,output_tokens,time\n1,2,5\n1,2,2024-05-12\n", "a.csv:3: time is '2024-05-12'"),
        ("a.csv", "prompt_tokens,output_tokens,time\n1,2,nan\n", "a.csv:2: time is 'nan'"),
        ("a.csv", "", "is empty"),
        ("a.csv", "prompt_tokens,output_tokens\n0,0\n", "has no request in it"),
        ("a.csv", "prompt_tokens,output_tokens\n1,99999999999\n", "below a billion"),
        ("a.csv", "prompt_tokens,output_tokens\n1,\"" + "9" * 200_000 + "\n", "is no CSV"),
        ("a.jsonl", "{", "a.jsonl:1: is no JSON"),
        ("a.jsonl", "[1]", "a.jsonl:1: is no JSON object"),
        ("a.jsonl", '{"prompt_tokens": -1, "output_tokens": 2}', "a.jsonl:1: prompt_tokens is -1"),
        ("a.jsonl", '{"prompt_tokens": true, "output_tokens": 2}', "prompt_tokens is True"),
        ("a.jsonl", '{"usage": {"prompt_tokens": 1}}', "no column for the answer's tokens among prompt_tokens"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(write(tmp_path, name, text))
    assert said in str(caught.value)
    assert caught.value.hint


def test_files_that_are_none_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=r"workload.trace: .*no.csv: cannot read the trace: No such file"):
        read_trace(tmp_path / "no.csv")
    (tmp_path / "b.csv").write_bytes(b"prompt_tokens,output_tokens\n\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"b.csv:2: holds the byte 0xff"):
        read_trace(tmp_path / "b.csv")
    (tmp_path / "c.gz").write_bytes(gzip.compress(AZURE.encode())[:-30])
    with pytest.raises(InvalidInput, match="broken gzip"):
        read_trace(tmp_path / "c.gz")
    with pytest.raises(InvalidInput, match="has no client in it"):
        read_trace(tmp_path)
    monkeypatch.setattr(trace_lines, "LONGEST_LINE_BYTES", 64)
    with pytest.raises(InvalidInput, match=r"d.csv:1: is a line of more than"):
        read_trace(write(tmp_path, "d.csv", "x" * 100))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["x.csv", "x.jsonl"]))
def test_no_text_breaks_it(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text, encoding="utf-8", newline="")
    try:
        trace = read_trace(path)
    except InvalidInput as error:
        assert error.where  # noqa: PT017 (it may raise, and then says where)
        return
    assert trace.read == len(trace.rows) + sum(trace.dropped.values())


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
_KEYS = ("prompt_tokens", "output_tokens", "ts", "hash_ids", "usage", "body", "request", "response", "messages", "n")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=6), min_size=1, max_size=4))
def test_no_record_breaks_it(tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, object]]) -> None:
    path = tmp_path_factory.getbasetemp() / "records.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    try:
        trace = read_trace(path)
    except InvalidInput as error:
        assert error.where  # noqa: PT017 (it may raise, and then says where)
        return
    assert trace.read == len(trace.rows) + sum(trace.dropped.values())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside the checkout")
@pytest.mark.parametrize(
    ("name", "read", "first", "step_s"),
    [
        ("AzureLLMInferenceTrace_conv.csv", 19366, (374, 44, 0.0), None),
        ("mooncake_conversation_first25min.jsonl", 4665, (6758, 500, 0.0), 3.0),
        ("sharegpt_8k_lengths_llama2.csv", 30731, (74, 918, None), None),
    ],
)
def test_real_traces_are_read_whole(name: str, read: int, first: Row, step_s: float | None) -> None:
    trace = read_trace(SHARED / "traces" / name)
    assert (trace.read, len(trace.rows), trace.dropped, trace.step_s) == (read, read, {}, step_s)
    row = trace.rows[0]
    assert (row.prompt_tokens, row.output_tokens, row.at_s) == first
    times = [r.at_s for r in trace.rows if r.at_s is not None]
    assert times == sorted(times)
