"""A vLLM server as httpx sees it, without sockets: what it answers is set by the test from one look to the next."""

from __future__ import annotations

import httpx


class ScriptedServer:
    """Answers /metrics, /health, /v1/models and /version from its attributes; `error` is raised instead of /metrics."""

    def __init__(self) -> None:
        self.gauges: dict[str, float] = {"num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage_perc": 0}
        self.counters: dict[str, float] = {"generation_tokens": 0, "prompt_tokens": 0, "num_preemptions": 0}
        self.error: type[httpx.TransportError] | None = None
        self.metrics_status = 200
        self.metrics_text: str | None = None
        self.health = 200
        self.health_error: type[httpx.TransportError] | None = None
        self.models: object = {"data": [{"id": "m", "root": "org/m", "max_model_len": 4096}]}
        self.models_status = 200
        self.models_headers: dict[str, str] = {}
        self.version = "0.32.0"

    def client(self) -> httpx.AsyncClient:
        """A client that asks this server."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/health":
            if self.health_error is not None:
                raise self.health_error("scripted", request=request)
            return httpx.Response(self.health)
        if self.error is not None:
            raise self.error("scripted", request=request)
        if path == "/metrics":
            return httpx.Response(self.metrics_status, text=self._text())
        if path == "/v1/models":
            return httpx.Response(self.models_status, json=self.models, headers=self.models_headers)
        if path == "/version":
            return httpx.Response(200, json={"version": self.version})
        return httpx.Response(404)

    def _text(self) -> str:
        if self.metrics_text is not None:
            return self.metrics_text
        lines = ['vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0']
        lines += [f'vllm:{name}{{engine="0"}} {value}' for name, value in self.gauges.items()]
        lines += [f'vllm:{name}_total{{engine="0"}} {value}' for name, value in self.counters.items()]
        return "\n".join(lines) + "\n"
