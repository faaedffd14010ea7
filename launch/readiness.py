"""Is the server ready: it is healthy, it lists the model under the name asked for, and it has answered one token.

`/health` alone says little: the server answers before a frozen engine is noticed, and another server may hold the port.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from launch.engine_command import EngineCommand

if TYPE_CHECKING:
    import httpx

_CONNECT_S = 2.0
_ANSWER_S = 10.0
_RETRY_S = 1.0
_TOKEN_S = 3600.0  # the first request may compile kernels; the launcher's own wait ends it


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How far a server has come; `text` says what is waited for. `refused`: it answers, but never will as it should,
    and `code` says why: `wrong-server`, `api-key` or `no-completions`.
    """

    state: Literal["silent", "healthy", "listed", "ready", "refused"]
    text: str
    max_model_len: int | None = None
    code: str = ""


class _Model(msgspec.Struct, frozen=True):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model] = []


class Probe:
    """Asks one server, step by step; each step is asked again until it succeeds. Loopback, no proxies."""

    def __init__(self, command: EngineCommand, api_key: str | None = None) -> None:
        import httpx

        key = command.api_key or api_key
        self._command = command
        self._client = httpx.Client(
            base_url=command.url + command.root_path,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            trust_env=False,
            verify=False,  # noqa: S501  the certificate is the server's own, and it is this machine's
        )
        self._max_model_len: int | None = None
        self._is_listed = False
        self._token: _Token | None = None
        self._again_at = 0.0
        self._last = "the first token"

    def ask(self) -> Readiness:
        """One step further, or where it stands; never waits longer than a short answer takes."""
        import httpx

        try:
            if not self._is_listed:
                seen = self._ask_models()
                if seen is not None:
                    return seen
            return self._ask_token()
        except httpx.TransportError:
            return Readiness(state="silent", text="the server to listen")
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
            return Readiness(state="healthy", text=f"a sensible answer ({type(error).__name__})")

    def close(self) -> None:
        """Close the connections. A completion that is still waited for ends with the server."""
        self._client.close()

    def _ask_models(self) -> Readiness | None:
        """Health, then the list of models; None once the model is listed."""
        health = self._client.get("/health")
        if health.status_code != 200:
            return Readiness(state="silent", text=f"/health, which answers {health.status_code}")
        answer = self._client.get("/v1/models")
        if answer.status_code in (401, 403):
            return _refused("api-key", f"/v1/models answers {answer.status_code}: it wants another API key")
        if answer.status_code != 200:
            return Readiness(state="healthy", text=f"/v1/models, which answers {answer.status_code}")
        models = msgspec.json.decode(answer.content, type=_Models).data
        name = self._command.served_model_name
        served = next((model for model in models if model.id == name), None)
        if served is None:
            names = ", ".join(model.id for model in models) or "none"
            return _refused("wrong-server", f"the server on this port has the models {names}, not {name}")
        self._max_model_len, self._is_listed = served.max_model_len, True
        return None

    def _ask_token(self) -> Readiness:
        if self._token is None:
            if time.monotonic() < self._again_at:
                return Readiness(state="listed", text=self._last, max_model_len=self._max_model_len)
            self._token = _Token(self._client, self._command.served_model_name)
        status, text = self._token.status, self._token.text
        if status is None:
            return Readiness(state="listed", text=self._last, max_model_len=self._max_model_len)
        if status == 200:
            return Readiness(state="ready", text="ready", max_model_len=self._max_model_len)
        if 400 <= status < 500:
            return _refused("no-completions", f"the model does not complete text: {status} {text}")
        self._token, self._again_at = None, time.monotonic() + _RETRY_S
        self._last = f"a completion, which answers {status}"
        return Readiness(state="listed", text=self._last, max_model_len=self._max_model_len)


def _refused(code: str, text: str) -> Readiness:
    return Readiness(state="refused", text=text, code=code)


class _Token:
    """One completion of one token, asked in a thread of its own: the first one may take minutes."""

    def __init__(self, client: httpx.Client, model: str) -> None:
        self.status: int | None = None
        self.text = ""
        self._client = client
        self._body: dict[str, Any] = {"model": model, "prompt": [0], "max_tokens": 1, "temperature": 0}
        threading.Thread(target=self._ask, name="first-token", daemon=True).start()

    def _ask(self) -> None:
        import httpx

        try:
            answer = self._client.post("/v1/completions", json=self._body, timeout=_TOKEN_S)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            self.status, self.text = 599, type(error).__name__
            return
        self.text = answer.text[:200]
        self.status = answer.status_code
