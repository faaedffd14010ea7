"""Model facts to ModelSpec."""

from __future__ import annotations

from advisor.facts import ModelFacts
from advisor.model.spec import ModelSpec
from advisor.versions import Version


def read_model(facts: ModelFacts, version: Version) -> ModelSpec:
    """The ModelSpec of a config, as vLLM `version` would build the model.

    Raises NotUnderstood (with the architecture, key or layer) for what kvadvise does not know, NoKvCache for models
    without a decoder cache.
    """
    raise NotImplementedError
