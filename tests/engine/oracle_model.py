# mypy: ignore-errors
"""What vLLM reads for one case of the oracle: config.json, and a config class where the model needs its own."""

from __future__ import annotations

import json
from pathlib import Path

# Stands in for a repository's custom code: the class it extends, renamed keys, nested configs that are classes.
REMOTE_CODE = """
import transformers
from transformers import {base}

class Block(dict):
    __getattr__ = dict.get

def blocks(value):
    return Block((k, blocks(v)) for k, v in value.items()) if isinstance(value, dict) else value

class Config({base}):
    model_type = {model_type!r}
    attribute_map = {attribute_map!r}

    def __init__(self, block_configs=None, **kwargs):
        for key, name in {sub!r}.items():
            if isinstance(kwargs.get(key), dict):
                kwargs[key] = getattr(transformers, name)(**kwargs[key])
        super().__init__(**kwargs)
        if block_configs:
            self.block_configs = [blocks(b) for b in block_configs]
"""


def model_dir(line: dict, scratch: str) -> str:
    """The directory vLLM reads: the one the case names, or one written from the config in the line."""
    if "config" not in line:
        return line["case"]["model"]
    config = dict(line["config"])
    if "remote_code" in line["case"]:  # a config class that only holds what config.json says
        config["auto_map"] = {"AutoConfig": "configuration_plain.Config"}
        remote = line["case"]["remote_code"]
        code = REMOTE_CODE.format(
            base=remote.get("base", "PretrainedConfig"),
            sub=remote.get("sub", {}),
            attribute_map=remote.get("attribute_map", {}),
            model_type=config.get("model_type", "plain"),
        )
        Path(scratch, "configuration_plain.py").write_text(code)
    Path(scratch, "config.json").write_text(json.dumps(config))
    return scratch
