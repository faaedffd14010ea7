"""How a GPU's name may be written: case, makers' words, sizes, MIG profiles, `2x` in front."""

from __future__ import annotations

import re

from advisor.errors import InvalidInput
from advisor.problems import shown

_FILLERS = re.compile(
    r"\((?:r|tm)\)|[^a-z0-9]+|"
    r"(?<![a-z])(?:nvidia|geforce|tesla|quadro|amd|instinct|radeon|intel|graphics|generation|edition|gpu)(?![a-z])"
)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4})[\s_-]*g(?:i?b)?(?![a-z0-9])")
_MIG = re.compile(
    r"[\s(/,-]*(?:\bmig[\s:_-]*)?(?<![a-z0-9])(\d\s*c\.)?(\d)g\.(\d{1,3})gb(?:[+-](?:me\.all|me|gfx))*(?![a-z0-9])\)?",
    re.IGNORECASE,
)
_TIMES = re.compile(r"\s*([0-9]{1,3})\s*[x×*]\s*(?=[^\W\d])", re.IGNORECASE)
_NAME_AT_MOST = 200


def name_key(text: str) -> str:
    """A name without what may be written in several ways: case, blanks, makers' words, RTX, GB or GiB.

    Works on a file's head too: the key of a name that stands in a text is part of the text's key.
    """
    return _FILLERS.sub("", text.lower()).replace("gib", "gb").replace("rtx", "")


def split_size(name: str) -> tuple[str, int | None]:
    """`A100-80GB` as (`A100-`, 80); (name, None) where no size is written."""
    found = _SIZE.search(name.lower()) if len(name) <= _NAME_AT_MOST else None
    if found is None:
        return name, None
    return f"{name[: found.start()]} {name[found.end() :]}", int(found[1])


def split_mig(name: str) -> tuple[str, str]:
    """`H100 MIG 1g.10gb+me` as (`H100`, `1g.10gb`): media and graphics suffixes change no memory.

    Raises InvalidInput for a compute instance (`1c.3g.40gb`), whose memory is not its own.
    """
    mig = _MIG.search(name[:_NAME_AT_MOST])
    if mig is None:
        return name, ""
    if mig[1]:
        raise InvalidInput(
            f"{shown(name)!r} is a compute instance, which shares its memory with others",
            hint="name the GPU instance it lies in, such as 3g.40gb",
        )
    return f"{name[: mig.start()]} {name[mig.end() :]}".strip(), f"{mig[2]}g.{mig[3]}gb"


def split_count(name: str) -> tuple[str, int | None]:
    """`2x RTX 4090` as (`RTX 4090`, 2); (name, None) where no number stands in front."""
    times = _TIMES.match(name)
    return (name, None) if times is None else (name[times.end() :], int(times[1]))
