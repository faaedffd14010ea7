"""What a family reads a model from, and the embeddings, final norm and head that most of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from advisor.weights.fields import Fields
from advisor.weights.tally import Tally


class Source(NamedTuple):
    """A config, its language part, and what else decides sizes. `untied`: the checkpoint has a head of its own."""

    root: Fields
    text: Fields
    untied: bool
    max_model_len: int | None
    towers: bool  # vision and audio towers are built (not with limit_mm_per_prompt 0)

    def with_root(self, **values: object) -> Source:
        """The same source with other values in the root, and in the text part where that is the root."""
        text = self.text if self.text.nested else with_values(self.text, values)
        return self._replace(root=with_values(self.root, values), text=text)

    def tied(self, *, default: bool = False) -> bool:
        """Whether head and embeddings are one tensor.

        A multimodal model asks the root, whose class decides (config/vllm.py: with_hf_config); a checkpoint that ships
        a head unties them (config/model.py: maybe_untie_word_embeddings, 0.31 on).
        """
        if self.untied:
            return False
        if self.text.nested and self.root.get("tie_word_embeddings") is not None:
            return self.root.flag("tie_word_embeddings")
        return self.text.flag("tie_word_embeddings", default)


def make_source(
    config: Mapping[str, Any], text: Fields, *, untied: bool, max_model_len: int | None, towers: bool = True
) -> Source:
    """A source for a config."""
    return Source(Fields(config), text, untied, max_model_len, towers)


class Edges(NamedTuple):
    """What hangs around the layers. The `_on` fields name the stages that build a part."""

    vocab: int
    width: int
    tied: bool
    embed: str = "model.embed_tokens"
    head: str = "lm_head"
    embed_on: Literal["first", "ends", "all"] = "first"  # and the last where tied
    norm_on: Literal["last", "all"] = "last"
    head_on: Literal["last", "all"] = "last"
    norm: int | None = None  # elements of the final norm, the width by default
    head_bias: bool = False
    more: Callable[[Tally, bool, bool], None] | None = None


EVERYWHERE: Mapping[str, Any] = {"embed_on": "all", "norm_on": "all", "head_on": "all"}  # built on every stage


def edges(e: Edges) -> Callable[[Tally, bool, bool], None]:
    """The function a blueprint wants."""

    def add(t: Tally, first: bool, last: bool) -> None:
        if first or e.embed_on == "all" or (last and (e.tied or e.embed_on == "ends")):
            t.embedding(e.embed, e.vocab, e.width)
        if last or e.norm_on == "all":
            t.values(e.width if e.norm is None else e.norm)
        if (last or e.head_on == "all") and not e.tied:
            t.head(e.head, e.vocab, e.width, bias=e.head_bias)
        if e.more is not None:
            e.more(t, first, last)

    return add


def edges_of(src: Source, base: str = "", **more: object) -> Edges:
    """The usual edges: `model.embed_tokens`, one norm of the hidden size, `lm_head`."""
    text = src.text
    usual = Edges(
        text.required("vocab_size"),
        text.required("hidden_size"),
        src.tied(),
        f"{base}model.embed_tokens",
        f"{base}lm_head",
    )
    return usual._replace(**more)  # type: ignore[arg-type]


def separate_head(src: Source, base: str = "") -> Edges:
    """The usual edges of a class that ties nothing; tied by the config, the last stage has the embeddings besides."""
    return edges_of(src, base, tied=False, embed_on="ends" if src.tied() else "first")


def with_values(fields: Fields, more: Mapping[str, object]) -> Fields:
    """The same part of a config with other values."""
    changed = Fields({**fields.values, **more}, nested=fields.nested, where=fields.where)
    changed.missing = fields.missing
    return changed


def sized(src: Source, hidden: int) -> Source:
    """The same source with the hidden size under its usual name."""
    if src.text.values.get("hidden_size") is not None:
        return src
    return src._replace(text=with_values(src.text, {"hidden_size": hidden}))
