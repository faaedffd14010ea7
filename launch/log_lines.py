"""One line of a vLLM log, without what stands before the message: times, process tags, colours, a container's prefix.

Shapes read (vLLM vllm/logger.py and logging_utils/formatter.py, 0.8 to 0.32): `INFO 04-25 10:00:00 [file.py:12] text`
(before 0.7 without the first bracket),
`(VllmWorker rank=1 pid=7) INFO ...`, `(EngineCore_DP0 pid=7) (Worker_TP1 pid=8) INFO ...`, and bare lines that another
library, a traceback or a progress bar printed. A line nobody knows is its own message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

LONGEST = 1 << 16  # characters of a line that are looked at; the engine's config line is the longest useful one

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTAINER = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,80}\s{1,40}\|\s|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)?\s)")
_TAG = re.compile(r"\(((?:[A-Za-z][\w.-]{0,40})(?:[ \w=.,-]{0,60})?)\)\s?")
_TAGGED = re.compile(r"\b(?:pid|rank|ip)=")
_HEAD = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s{1,8}"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\s|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\s)?"
    r"(?:\[?([^\[\]\s]{1,120}:\d+)\]\s?)?"
)
_RANK = re.compile(r"(?:rank[= ]|_?TP|_?PP|_?DP|Worker[-_])")
_NUMBERED_BY_PID = re.compile(r"Ray|VllmWorkerProcess")
_START = re.compile(r"vLLM (?:API )?server version\s|\bversion \d+\.\d+\S*$")


class LogLine(msgspec.Struct, frozen=True):
    """A line taken apart. `number` counts from 1; `process` is the innermost tag ("Worker_TP1"), empty where none is.

    `engine` is the tag of the engine core, where the line has one; `source` is `file.py:line` of the logging call.
    """

    number: int
    text: str
    process: str = ""
    engine: str = ""
    level: str = ""
    source: str = ""

    @property
    def speaker(self) -> str:
        """Who said it: one rank of one engine, one engine, or empty for the server and everything untagged."""
        if not self.engine or self.engine == self.process:
            return self.process
        return f"{self.engine} {self.process}"


def read_lines(lines: Iterable[str]) -> list[LogLine]:
    """Every line taken apart; a progress bar's carriage returns leave its last state."""
    return [read_line(number, line) for number, line in enumerate(lines, 1)]


def read_line(number: int, line: str) -> LogLine:
    """One line as printed, of any length (what lies beyond 64 Ki characters is not looked at)."""
    rest = _last_state(line[:LONGEST])
    container = _CONTAINER.match(rest)
    while container is not None and container.end() < len(rest):
        rest = rest[container.end() :]
        container = _CONTAINER.match(rest)
    tags, rest = _tags(rest)
    head = _HEAD.match(rest)
    if head is None:
        return LogLine(number, rest.rstrip(), _innermost(tags), _engine(tags))
    after, rest = _tags(rest[head.end() :])
    tags += after
    return LogLine(number, rest.rstrip(), _innermost(tags), _engine(tags), head[1], head[2] or "")


def starts(lines: Sequence[LogLine]) -> Iterator[Sequence[LogLine]]:
    """The attempts in a log, one after the other: a restarted server prints its version again."""
    begins = [i for i, line in enumerate(lines) if is_start(line)]
    edges = [0, *begins[1:], len(lines)] if begins else [0, len(lines)]
    for begin, end in itertools.pairwise(edges):
        yield lines[begin:end]


def last_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """The last attempt in a log; all of it where no server names its version."""
    last: Sequence[LogLine] = lines
    for attempt in starts(lines):
        last = attempt
    return last


def is_start(line: LogLine) -> bool:
    """Whether an API server says its version, which it does once, first."""
    return "version" in line.text and line.level in ("INFO", "") and _START.search(line.text) is not None


def _last_state(line: str) -> str:
    """What a terminal would show of it: after the last carriage return, without colours."""
    line = line.rstrip("\r\n")
    if "\r" in line:
        line = line.rsplit("\r", 1)[1] or line
    return _COLOUR.sub("", line) if "\x1b" in line else line


def _tags(text: str) -> tuple[list[str], str]:
    tags: list[str] = []
    while text.startswith("("):
        tag = _TAG.match(text)
        if tag is None or _TAGGED.search(tag[1]) is None:
            break
        tags.append(_without_pid(tag[1]))
        text = text[tag.end() :]
    return tags, text


def _without_pid(tag: str) -> str:
    if _NUMBERED_BY_PID.match(tag):  # ranks that only their process number tells apart
        return tag
    return re.sub(r",?\s*(?:pid|ip)=[\w.:-]+", "", tag).strip()


def _innermost(tags: list[str]) -> str:
    return tags[-1] if tags else ""


def _engine(tags: list[str]) -> str:
    return next((tag for tag in tags if tag.startswith("EngineCore")), "")


def is_ranked(process: str) -> bool:
    """Whether a process tag is a worker's, so that its figures are one rank's."""
    return _RANK.search(process) is not None
