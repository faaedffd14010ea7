"""The tensors of nine published checkpoints, rebuilt from their configs: what their headers would list."""

from __future__ import annotations

from typing import Any

Shape = tuple[int, ...]

# total_size of model.safetensors.index.json in mirrors of the nine repositories, and the parameter count the hub shows
# (as scraped by llmfit 1.1.17) or the index gives; None where no source gives one.
PUBLISHED: dict[str, tuple[int, int | None]] = {
    "HuggingFaceTB/SmolLM3-3B": (6_150_197_248, 3_075_098_624),
    "Qwen/Qwen-72B": (144_575_840_256, 72_287_920_128),
    "alpindale/WizardLM-2-8x22B": (281_241_268_224, 140_620_634_112),
    "bigscience/bloom": (352_494_542_848, 176_247_271_424),
    "google/medgemma-27b-it": (54_864_813_280, None),
    "ibm-granite/granite-3b-code-instruct-128k": (6_965_007_360, 3_482_503_680),
    "instructlab/granite-7b-lab": (13_476_962_304, None),
    "meta-llama/Llama-3.2-3B": (6_425_499_648, 3_212_749_824),
    "mistralai/Devstral-Small-2507": (47_144_806_400, 23_572_403_200),
}


def checkpoint(model_id: str, config: dict[str, Any]) -> dict[str, Shape]:
    """Name -> shape, all of 16 bits."""
    if model_id == "bigscience/bloom":
        return _bloom(config)
    if model_id == "Qwen/Qwen-72B":
        return _first_qwen(config)
    if model_id == "google/medgemma-27b-it":
        text = _llama({**config["text_config"], "tie_word_embeddings": True}, "language_model.model.", gemma=True)
        return {**text, **_siglip(config)}
    return _llama(config, "model.", smol=model_id.endswith("SmolLM3-3B"))


def _llama(c: dict[str, Any], prefix: str, *, gemma: bool = False, smol: bool = False) -> dict[str, Shape]:
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    heads, kv_heads = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    shapes: dict[str, Shape] = {
        f"{prefix}embed_tokens.weight": (c["vocab_size"], hidden),
        f"{prefix}norm.weight": (hidden,),
    }
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        for name, shape in (
            ("q", (heads, hidden)),
            ("k", (kv_heads, hidden)),
            ("v", (kv_heads, hidden)),
            ("o", (hidden, heads)),
        ):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = shape
            if c.get("attention_bias"):
                shapes[f"{layer}self_attn.{name}_proj.bias"] = shape[:1]
        shapes |= _experts(c, layer) if c.get("num_local_experts") else _mlp(c, layer, hidden, inner)
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
        shapes |= {f"{layer}{norm}.weight": (hidden,) for norm in norms}
        if gemma:
            shapes |= {f"{layer}self_attn.{norm}.weight": (dim,) for norm in ("q_norm", "k_norm")}
    if not (c.get("tie_word_embeddings") or smol):
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    return shapes


def _mlp(c: dict[str, Any], layer: str, hidden: int, inner: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
        shapes[f"{layer}mlp.{name}_proj.weight"] = shape
        if c.get("mlp_bias"):
            shapes[f"{layer}mlp.{name}_proj.bias"] = shape[:1]
    return shapes


def _experts(c: dict[str, Any], layer: str) -> dict[str, Shape]:
    hidden, inner, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    shapes: dict[str, Shape] = {f"{layer}block_sparse_moe.gate.weight": (n, hidden)}
    for i in range(n):
        for name, shape in (("w1", (inner, hidden)), ("w2", (hidden, inner)), ("w3", (inner, hidden))):
            shapes[f"{layer}block_sparse_moe.experts.{i}.{name}.weight"] = shape
    return shapes


def _bloom(c: dict[str, Any]) -> dict[str, Shape]:
    hidden, n_layers = c.get("n_embed") or c["hidden_size"], c.get("n_layer") or c["num_hidden_layers"]
    shapes: dict[str, Shape] = {"word_embeddings.weight": (c["vocab_size"], hidden)}
    norms = ["word_embeddings_layernorm", "ln_f"]
    linears = {
        "self_attention.query_key_value": 3 * hidden,
        "self_attention.dense": hidden,
        "mlp.dense_h_to_4h": 4 * hidden,
    }
    for i in range(n_layers):
        norms += [f"h.{i}.input_layernorm", f"h.{i}.post_attention_layernorm"]
        for name, rows in linears.items():
            shapes |= {f"h.{i}.{name}.weight": (rows, hidden), f"h.{i}.{name}.bias": (rows,)}
        shapes |= {f"h.{i}.mlp.dense_4h_to_h.weight": (hidden, 4 * hidden), f"h.{i}.mlp.dense_4h_to_h.bias": (hidden,)}
    return shapes | {f"{norm}.{part}": (hidden,) for norm in norms for part in ("weight", "bias")}


def _first_qwen(c: dict[str, Any]) -> dict[str, Shape]:
    hidden, inner = c["hidden_size"], c["intermediate_size"] // 2
    shapes: dict[str, Shape] = {
        "transformer.wte.weight": (c["vocab_size"], hidden),
        "transformer.ln_f.weight": (hidden,),
        "lm_head.weight": (c["vocab_size"], hidden),
    }
    for i in range(c["num_hidden_layers"]):
        layer = f"transformer.h.{i}."
        shapes |= {
            f"{layer}ln_1.weight": (hidden,),
            f"{layer}ln_2.weight": (hidden,),
            f"{layer}attn.c_attn.weight": (3 * hidden, hidden),
            f"{layer}attn.c_attn.bias": (3 * hidden,),
            f"{layer}attn.c_proj.weight": (hidden, hidden),
            f"{layer}mlp.w1.weight": (inner, hidden),
            f"{layer}mlp.w2.weight": (inner, hidden),
            f"{layer}mlp.c_proj.weight": (hidden, inner),
        }
    return shapes


def _siglip(config: dict[str, Any]) -> dict[str, Shape]:
    c = config["vision_config"]
    hidden, inner, patch = c["hidden_size"], c["intermediate_size"], c["patch_size"]
    tower = "vision_tower.vision_model."
    shapes: dict[str, Shape] = {
        f"{tower}embeddings.patch_embedding.weight": (hidden, 3, patch, patch),
        f"{tower}embeddings.patch_embedding.bias": (hidden,),
        f"{tower}embeddings.position_embedding.weight": ((c["image_size"] // patch) ** 2, hidden),
        f"{tower}post_layernorm.weight": (hidden,),
        f"{tower}post_layernorm.bias": (hidden,),
        "multi_modal_projector.mm_input_projection_weight": (hidden, config["text_config"]["hidden_size"]),
        "multi_modal_projector.mm_soft_emb_norm.weight": (hidden,),
    }
    linears = {"mlp.fc1": (inner, hidden), "mlp.fc2": (hidden, inner)}
    linears |= {f"self_attn.{name}": (hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
    for i in range(c["num_hidden_layers"]):
        for name, shape in linears.items():
            shapes |= {
                f"{tower}encoder.layers.{i}.{name}.weight": shape,
                f"{tower}encoder.layers.{i}.{name}.bias": shape[:1],
            }
        for name in ("layer_norm1", "layer_norm2"):
            shapes |= {f"{tower}encoder.layers.{i}.{name}.{part}": (hidden,) for part in ("weight", "bias")}
    return shapes
