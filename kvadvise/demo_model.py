"""A small model to try vLLM with: random weights, a tokenizer trained on the spot, nothing downloaded.

The engine's own python makes it, since that has the tokenizer library; torch is not imported, so it takes a second. The
same files come out each time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from advisor.errors import EngineUnavailable, InvalidInput

_TIMEOUT_S = 120.0
_SCRIPT = """
import json, sys
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

folder, vocabulary, hidden, inner, layers, heads, kv_heads = sys.argv[1], 1024, 256, 512, 4, 4, 2
size, special = hidden // heads, ["<pad>", "<s>", "</s>"]
chat = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}assistant:"

def write(name, value):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)

bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
text = [f"request {i} asks for {i * i} tokens and waits {i % 7} seconds for the answer" for i in range(2000)]
alphabet = pre_tokenizers.ByteLevel.alphabet()
bpe.train_from_iterator(text, trainers.BpeTrainer(
    vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
bpe.save(f"{folder}/tokenizer.json")
names = {"pad_token": special[0], "bos_token": special[1], "eos_token": special[2]}
write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chat, **names})

shapes = {"model.embed_tokens.weight": (vocabulary, hidden)}
for n in range(layers):
    layer = f"model.layers.{n}."
    shapes |= {
        layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
        layer + "self_attn.q_proj.weight": (heads * size, hidden),
        layer + "self_attn.k_proj.weight": (kv_heads * size, hidden),
        layer + "self_attn.v_proj.weight": (kv_heads * size, hidden),
        layer + "self_attn.o_proj.weight": (hidden, heads * size),
        layer + "mlp.gate_proj.weight": (inner, hidden), layer + "mlp.up_proj.weight": (inner, hidden),
        layer + "mlp.down_proj.weight": (hidden, inner)}
shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}
draw, blocks, header, end = np.random.default_rng(0), [], {"__metadata__": {"format": "pt"}}, 0
for name, shape in shapes.items():
    values = np.ones(shape, np.float32) if "norm" in name else draw.normal(0, 0.05, shape).astype(np.float32)
    blocks.append((values.view(np.uint32) >> 16).astype("<u2").tobytes())
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(blocks[-1])]}
    end += len(blocks[-1])
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
with open(f"{folder}/model.safetensors", "wb") as file:
    file.write(len(head).to_bytes(8, "little") + head + b"".join(blocks))

write("config.json", {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
    "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
    "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})
"""
_WORKLOAD = """\
# What `kvadvise demo` plans: its own model on this machine's CPU.
schema: kvadvise.workload/1
name: kvadvise-demo
model: {id: kvadvise-demo, path: PLACE}
gpu: cpu
workload:
  prompt_tokens: {p50: 120, p95: 300, max: 512}
  output_tokens: {p50: 60, p95: 200, max: 512}
  concurrency: 16
engine:
  kv_cache_memory_bytes: 33554432   # 32 MiB: room for some dozen requests, whatever this machine has
  enforce_eager: true               # no compiler: it starts sooner
  served_model_name: kvadvise-demo
"""


class DemoModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is. `was_made` is whether this call made it; `n_bytes` what its files take."""

    workload: Path
    directory: Path
    n_bytes: int
    was_made: bool


def demo_model(python: str, place: Path, env: Mapping[str, str]) -> DemoModel:
    """The model and its workload file below `place`, made by `python` unless they are there; whole or not at all.

    Raises InvalidInput where it cannot be written, EngineUnavailable where the python cannot make it.
    """
    version = hashlib.sha256((_SCRIPT + _WORKLOAD).encode()).hexdigest()[:8]
    folder = place / f"demo-{version}"
    was_made = not folder.exists()
    if was_made:
        try:
            _make(python, folder, env)
        except OSError as error:
            raise InvalidInput(f"the demo's model cannot be written: {error.strerror}", where=str(folder)) from None
    directory = folder / "model"
    size = sum(path.stat().st_size for path in directory.iterdir())
    return DemoModel(workload=folder / "workload.yaml", directory=directory, n_bytes=size, was_made=was_made)


def _make(python: str, folder: Path, env: Mapping[str, str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".demo-") as temporary:
        made = Path(temporary) / "made"
        (made / "model").mkdir(parents=True)
        (made / "workload.yaml").write_text(_workload(folder / "model"), encoding="utf-8")
        _run(python, made / "model", env)
        try:
            made.replace(folder)
        except OSError:
            if not folder.exists():  # else another demo was quicker
                raise
            shutil.rmtree(made)


def _workload(model: Path) -> str:
    return _WORKLOAD.replace("PLACE", json.dumps(str(model)))  # a JSON string is a YAML one


def _run(python: str, directory: Path, env: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _SCRIPT, str(directory)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(f"{python} did not make a model in {_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineUnavailable(f"{python} cannot make a model: {last or f'exit code {done.returncode}'}")
