"""A server that runs, read from outside and changed in nothing: its metrics over a while, its health, its models."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from advisor.errors import EngineUnavailable, InvalidInput
from advisor.server_metrics import ServerMetrics, read_metrics

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 10.0
_LARGEST_BYTES = 32 << 20  # of an answer; vLLM's own metrics have some 100 kB an engine
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KEY_HINT = "set KVADVISE_API_KEY or VLLM_API_KEY to the key it was started with"


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that /v1/models lists."""

    id: str
    max_model_len: int | None = None
    owned_by: str = ""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered. `readings` are empty where it has no metrics of vLLM's; `notes` say what was refused."""

    url: str
    version: str | None = None
    health_status: int | None = None
    models: tuple[ServedModel, ...] = ()
    readings: tuple[ServerMetrics, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Between the first reading and the last."""
        times = [reading.at_s for reading in self.readings if reading.at_s is not None]
        return times[-1] - times[0] if len(times) > 1 else 0.0


def address_of(text: str) -> str:
    """A server's address without `/v1` and slashes at its end; `host:port` is taken as http.

    Raises InvalidInput for what is none.
    """
    whole = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(whole)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_one = False
    if not is_one or any(c.isspace() for c in whole) or parts.query or parts.fragment:
        raise InvalidInput(f"{shown(text)!r} is no address", where="--url", hint="such as http://127.0.0.1:8000")
    return whole.rstrip("/").removesuffix("/v1").rstrip("/")


def is_here(url: str) -> bool:
    """Whether an address is this machine's own loopback."""
    return urlsplit(url).hostname in _LOOPBACK


def shown(url: str) -> str:
    """An address without a user's name and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def look(
    url: str,
    *,
    api_key: str | None,
    seconds: float,
    readings: int,
    ca_file: str | None = None,
    on_wait: Callable[[float], None] | None = None,
) -> Live:
    """Ask a server who it is, and read its metrics `readings` times over `seconds`; `on_wait` is told how long.

    Raises EngineUnavailable where nothing answers, something that is not vLLM does, or it stops answering meanwhile.
    """
    import httpx

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx.Client(
        base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False, verify=_certificates(url, ca_file)
    )
    with client:
        asking = _Asking(client, shown(url), api_key)
        first = asking.metrics()
        live = asking.identity(has_metrics=first is not None)
        if first is None:
            return live
        if on_wait is not None:
            on_wait(seconds)
        return msgspec.structs.replace(live, readings=(first, *asking.later(first, seconds, readings)))


class _Asking:
    """Questions to one server; what it refuses is noted, and the key is in no message."""

    def __init__(self, client: httpx.Client, url: str, api_key: str | None) -> None:
        self.client = client
        self.url = url
        self.api_key = api_key
        self.notes: list[str] = []

    def metrics(self) -> ServerMetrics | None:
        """A reading; None where the server has no vLLM metrics. Raises EngineUnavailable where it does not answer."""
        status, body = self.get("/metrics")
        if status in (401, 403):
            self.notes.append(f"/metrics answers {status}: {_KEY_HINT}")
        if status != 200:
            return None
        try:
            reading = read_metrics(body.decode("utf-8", "replace"), at_s=time.monotonic())
        except ValueError:
            return None
        return reading if b"vllm:" in body else None

    def identity(self, *, has_metrics: bool) -> Live:
        """Version, health and models. Raises EngineUnavailable where nothing of it is vLLM's."""
        version = self._version()
        models = self._models()
        is_vllm = has_metrics or version is not None or any(model.owned_by == "vllm" for model in models)
        if not is_vllm and not self.notes:
            raise EngineUnavailable(
                "answers, and is not vLLM: it has no vllm: figures at /metrics and no /version",
                where=self.url,
                hint="give the address that vLLM itself listens on, not that of a gateway",
            )
        if not is_vllm:
            raise EngineUnavailable("; ".join(self.notes), where=self.url)
        health, _ = self.get("/health", may_fail=True)
        return Live(url=self.url, version=version, health_status=health, models=models, notes=tuple(self.notes))

    def later(self, first: ServerMetrics, seconds: float, readings: int) -> list[ServerMetrics]:
        """The readings after the first, evenly spread. Raises EngineUnavailable where one of them fails."""
        begin = first.at_s if first.at_s is not None else time.monotonic()
        found: list[ServerMetrics] = []
        for number in range(1, readings):
            time.sleep(max(0.0, begin + seconds * number / (readings - 1) - time.monotonic()))
            reading = self.metrics()
            if reading is None:
                raise EngineUnavailable("no longer gives its metrics", where=self.url, hint="look at its log")
            found.append(reading)
        return found

    def get(self, path: str, *, may_fail: bool = False) -> tuple[int | None, bytes]:
        """Status and body; with `may_fail` (None, b"") where nothing comes."""
        import httpx

        try:
            with self.client.stream("GET", path) as answer:
                body = b""
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _LARGEST_BYTES:
                        raise EngineUnavailable(f"{path} does not end", where=self.url)
                return answer.status_code, body
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            if may_fail:
                return None, b""
            raise EngineUnavailable(self._why(path, error), where=self.url, hint=_hint(error)) from None

    def _why(self, path: str, error: Exception) -> str:
        import httpx

        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            what = f"cannot be reached: {error}" if str(error) else "cannot be reached"
        elif isinstance(error, httpx.TimeoutException):
            what = f"took the connection and does not answer {path} within {_TIMEOUT_S:.0f} s"
        else:
            what = f"does not answer {path} as a server does ({type(error).__name__}: {error})"
        return what.replace(self.api_key, "***") if self.api_key else what

    def _version(self) -> str | None:
        version = self._object("/version").get("version")
        return version if isinstance(version, str) else None

    def _models(self) -> tuple[ServedModel, ...]:
        status, body = self.get("/v1/models", may_fail=True)
        if status in (401, 403):
            self.notes.append(f"/v1/models answers {status}: {_KEY_HINT}")
        try:
            listed = msgspec.json.decode(body).get("data") if status == 200 else []
            return tuple(msgspec.convert(one, ServedModel) for one in listed if isinstance(one, dict) and "id" in one)
        except (msgspec.DecodeError, msgspec.ValidationError, AttributeError, TypeError):
            return ()

    def _object(self, path: str) -> dict[str, Any]:
        status, body = self.get(path, may_fail=True)
        try:
            value = msgspec.json.decode(body) if status == 200 else None
        except msgspec.DecodeError:
            value = None
        return value if isinstance(value, dict) else {}


def _hint(error: Exception) -> str:
    text = str(error).lower()
    if "certificate" in text:
        return "name its authority with --ca-file"
    if "wrong version number" in text or "ssl" in text:
        return "is it http, not https?"
    return "is it running, and is this its port? its log says why not: kvadvise diagnose --log FILE"


def _certificates(url: str, ca_file: str | None) -> ssl.SSLContext | bool:
    """This machine's own servers need no authority, as with the launcher."""
    if not url.startswith("https://"):
        return False
    if ca_file is None and is_here(url):
        return False
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidInput(
            f"cannot be read as certificates: {error}", where=str(ca_file), hint="a PEM file of the authority's"
        ) from error
