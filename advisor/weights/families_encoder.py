"""Whisper, and encoders without a decoder: BERT and RoBERTa.

Source: vLLM 0.32 model_executor/models/{whisper,bert,roberta}.py.
"""

from __future__ import annotations

from advisor.weights.attention import Heads, Names, attention
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import plain_mlp
from advisor.weights.source import Source
from advisor.weights.tally import Tally


def whisper(src: Source) -> Blueprint:
    """Whisper: an encoder with two convolutions, a decoder with cross-attention; the embeddings whole on every rank."""
    f = src.text
    hidden = f.required("d_model")
    encoder = Heads(hidden, f.required("encoder_attention_heads"), f.required("encoder_attention_heads"), 0)
    decoder = encoder._replace(
        queries=f.required("decoder_attention_heads"), keys=f.required("decoder_attention_heads")
    )
    encoder = encoder._replace(dim=hidden // encoder.queries, bias=True, out_bias=True)
    decoder = decoder._replace(dim=hidden // decoder.queries, bias=True, out_bias=True)
    names = Names(out="out_proj")

    def encoder_layer(t: Tally, i: int) -> None:
        name = f"model.encoder.layers.{i}"
        attention(t, f"{name}.self_attn", encoder, names)
        plain_mlp(t, f"{name}.mlp", hidden, f.required("encoder_ffn_dim"), bias=True, up="fc1", down="fc2")
        t.values(4 * hidden)
        t.n_bytes -= 16  # the encoder's attention has no KV scales

    def layer(t: Tally, i: int) -> None:
        name = f"model.decoder.layers.{i}"
        attention(t, f"{name}.self_attn", decoder, names)
        t.column(f"{name}.encoder_attn.q_proj", hidden, hidden, bias=True)
        t.column(f"{name}.encoder_attn.kv_proj", hidden, hidden, hidden, bias=True)
        t.row(f"{name}.encoder_attn.out_proj", hidden, hidden, bias=True)
        t.attention_scales()
        plain_mlp(t, f"{name}.mlp", hidden, f.required("decoder_ffn_dim"), bias=True, up="fc1", down="fc2")
        t.values(6 * hidden)

    def around(t: Tally, _first: bool, _last: bool) -> None:
        for i in range(f.required("encoder_layers")):
            encoder_layer(t, i)
        t.values(3 * f.size("num_mel_bins", 80) * hidden + hidden + 3 * hidden * hidden + hidden)
        t.values((f.size("max_source_positions", 1500) + f.size("max_target_positions", 448)) * hidden)
        t.values(f.required("vocab_size") * hidden + 4 * hidden)

    return Blueprint(f.required("decoder_layers"), lambda _: None, layer, around)


def bert(src: Source) -> Blueprint:
    """BERT and RoBERTa: all three embeddings are padded and divided like a vocabulary."""
    f = src.text
    hidden, heads = f.required("hidden_size"), f.required("num_attention_heads")
    a = Heads(hidden, heads, heads, hidden // heads, bias=True, out_bias=True)
    positions = f.required("max_position_embeddings")
    names = src.root.get("architectures") or [""]
    labels = src.root.get("id2label")
    outputs = len(labels) if isinstance(labels, dict) else int(src.root.get("num_labels") or 2)

    def layer(t: Tally, i: int) -> None:
        name = f"model.encoder.layer.{i}"
        attention(t, f"{name}.attention.self", a, Names(out="../output.dense"))
        plain_mlp(
            t, name, hidden, f.required("intermediate_size"), bias=True, up="intermediate.dense", down="output.dense"
        )
        t.values(4 * hidden)

    def around(t: Tally, _first: bool, _last: bool) -> None:
        t.embedding("model.embeddings.word_embeddings", f.required("vocab_size"), hidden)
        t.embedding("model.embeddings.position_embeddings", positions, hidden)
        t.embedding("model.embeddings.token_type_embeddings", f.size("type_vocab_size", 2), hidden)
        t.values(2 * hidden)
        t.values(positions, 8)
        if "SequenceClassification" in names[0]:
            t.values(hidden * hidden + hidden + outputs * hidden + outputs, 4)
        if "MaskedLM" in names[0]:
            t.values(hidden * hidden + hidden + 2 * hidden + f.required("vocab_size") * (hidden + 1))

    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, around)
