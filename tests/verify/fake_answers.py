"""What the fake server says on a connection: requests read, refusals, and answers streamed in vLLM's shapes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tests.verify.fake_engine import Job

if TYPE_CHECKING:
    from tests.verify.fake_vllm import FakeServer

FINGERPRINT = "vllm-0.32.0-00000000"


class Connection(asyncio.Protocol):
    """One client's connection; requests come one after another."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.buffer = b""
        self.job: Job | None = None
        self.stream: Stream | None = None
        self.capped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self.server.open.add(self)
        self.server.connections += 1
        cap = self.server.amount("connection_cap", 100)
        if self.server.has("connection_cap") and len(self.server.open) > cap:
            self.capped = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.open.discard(self)
        if self.job is not None:
            self.server.ended += 1
            self.server.engine.leaks = self.server.has("leak_after_cancel")
            self.server.engine.abort(self.job)
        for other in self.server.open:
            if other.capped and len(self.server.open) - 1 < self.server.amount("connection_cap", 100):
                other.capped = False
                other.data_received(b"")
                break

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while not self.capped and self.job is None:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                if self.buffer[:1] and not self.buffer[:1].isalpha():
                    self.reply(400, b"Invalid HTTP request received.")
                    self.transport.close()
                return
            head = self.buffer[:end].decode("latin-1").split("\r\n")
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
            size = int(headers.get("content-length", "0"))
            if len(self.buffer) < end + 4 + size:
                return
            body = self.buffer[end + 4 : end + 4 + size]
            self.buffer = self.buffer[end + 4 + size :]
            method, path, _ = head[0].split(" ", 2)
            self.respond(method, path, headers, body)

    def respond(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        server = self.server
        path = path.partition("?")[0]
        if path == "/health":
            delay = server.amount("slow_health", 10.0) if server.has("slow_health") else 0.0
            later(delay, lambda: self.reply(503 if server.has("unhealthy") else 200, b""))
        elif path == "/metrics":
            text = server.metrics()
            self.reply(404 if text is None else 200, text or b"", "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/version":
            self.reply_json(200, {"version": server.options.version})
        elif server.options.api_key and headers.get("authorization") != f"Bearer {server.options.api_key}":
            self.reply_json(401, {"error": "Unauthorized"})
        elif path == "/v1/models":
            name = "other" if server.has("wrong_model") else server.options.model
            card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": name}
            card |= {"parent": None, "max_model_len": server.options.max_model_len, "permission": []}
            self.reply_json(200, {"object": "list", "data": [card]})
        elif path in ("/v1/completions", "/v1/chat/completions") and method == "POST":
            self.completion(path, headers, body)
        else:
            self.reply_json(404, {"detail": "Not Found"})

    def completion(self, path: str, headers: dict[str, str], raw: bytes) -> None:
        server = self.server
        try:
            body = msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            self.error(400, f"invalid JSON: {error}")
            return
        server.bodies[:] = [*server.bodies[-15:], body]
        server.headers[:] = [*server.headers[-15:], headers]
        refused = self.refusal(path, body)
        if refused is not None:
            self.error(*refused)
            return
        if server.strikes("redirect", server.accepted + 1):
            server.accepted += 1
            self.reply(307, b"", extra=f"location: http://127.0.0.1:1{path}\r\n")
            return
        prompt = self.prompt(path, body)
        longest = server.options.max_model_len
        if server.has("cuts_prompts"):
            prompt = prompt[: longest - 1]
        max_tokens = min(int(body.get("max_tokens") or 16), longest - len(prompt))
        server.accepted += 1
        stop_at = max_tokens
        if server.strikes("short_outputs", server.accepted):
            stop_at = max(1, int(max_tokens * 0.6))
        self.stream = Stream(self, path.endswith("chat/completions"), body, prompt)
        job = Job(
            id=f"{server.accepted:016x}",
            prompt=prompt,
            max_tokens=max_tokens,
            salt=str(body.get("cache_salt", "")) if "cache_salt" not in server.options.ignores else "",
            arrived=time.perf_counter(),
            stop_at=stop_at,
            send=self.stream.token,
        )
        self.job = job
        server.log.append(job)
        self.stream.begin(job)
        server.engine.add(job)
        server.kick()

    def prompt(self, path: str, body: dict[str, Any]) -> list[int]:
        if path == "/v1/completions" and isinstance(body.get("prompt"), list):
            return list(body["prompt"])
        text = json.dumps(body.get("messages")) if path != "/v1/completions" else str(body.get("prompt"))
        return list(text.encode())

    def refusal(self, path: str, body: dict[str, Any]) -> tuple[int, str] | None:
        """What vLLM answers at once to a request it will not serve."""
        server, o = self.server, self.server.options
        if server.has("http_400"):
            return 400, "this server refuses everything"
        if server.has("http_500"):
            return 500, "Internal server error"
        if server.strikes("reject_503", server.accepted + 1):
            server.accepted += 1
            server.engine.counters.rejections["max_num_queued_reqs"] += 1
            return 503, "The engine is currently busy and cannot accept new requests. Please try again later."
        extra = [name for name in o.forbids_extra if name in body]
        if extra:
            return 400, f"[{{'type': 'extra_forbidden', 'loc': ('body', '{extra[0]}'), 'msg': 'not permitted'}}]"
        if body.get("model") != o.model or server.has("wrong_model"):
            return 404, f"The model `{body.get('model')}` does not exist. Valid aliases: {o.model}."
        unfinished = len(server.engine.running) + len(server.engine.waiting)
        if o.max_num_queued_reqs is not None and unfinished + 1 > o.max_num_queued_reqs:
            server.engine.counters.rejections["max_num_queued_reqs"] += 1
            return 503, "The engine is currently busy and cannot accept new requests. Please try again later."
        return self.too_long(path, body)

    def too_long(self, path: str, body: dict[str, Any]) -> tuple[int, str] | None:
        server, longest = self.server, self.server.options.max_model_len
        prompt, wanted = len(self.prompt(path, body)), int(body.get("max_tokens") or 16)
        if server.has("cuts_prompts"):
            return None
        if prompt > longest and server.has("over_limit_500"):
            return 500, "IndexError: index out of range"
        if prompt > longest:
            return 400, (
                f"This model's maximum context length is {longest} tokens. However, your prompt contains {prompt} "
                "input tokens, which exceeds this limit even without any output tokens."
            )
        if wanted > longest:
            return 400, f"max_tokens={wanted} cannot be greater than max_model_len={longest}."
        left = min(wanted, longest - prompt)
        if left < 1:
            return 400, f"max_tokens must be at least 1, got {left}."
        if server.has("over_limit_400") and prompt + wanted > longest:
            return 400, f"prompt and max_tokens together are {prompt + wanted} tokens, more than {longest}."
        if int(body.get("min_tokens") or 0) > left:
            return 400, f"min_tokens must be less than or equal to max_tokens={left}, got {body['min_tokens']}."
        return None

    def error(self, status: int, message: str) -> None:
        kind = {404: "NotFoundError", 503: "Service Unavailable", 500: "InternalServerError"}
        self.reply_json(
            status,
            {"error": {"message": message, "type": kind.get(status, "BadRequestError"), "param": None, "code": status}},
        )

    def reply_json(self, status: int, value: object) -> None:
        self.reply(status, msgspec.json.encode(value), "application/json")

    def reply(self, status: int, body: bytes, kind: str = "", extra: str = "") -> None:
        if self.transport.is_closing():
            return
        head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Whatever'}\r\nserver: fake\r\n{extra}"
        head += f"content-type: {kind}\r\n" if kind else ""
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def finished(self) -> None:
        """The answer is out; the next request may come."""
        self.job = None
        self.server.ended += 1
        if self.server.has("early_close"):
            self.transport.close()
        elif self.buffer:
            asyncio.get_running_loop().call_soon(self.data_received, b"")


class Stream:
    """One answer on its way: events in chunks, with the faults that touch it."""

    def __init__(self, connection: Connection, chat: bool, body: dict[str, Any], prompt: list[int]) -> None:
        self.connection, self.chat, self.prompt = connection, chat, prompt
        self.server = connection.server
        self.number = self.server.accepted
        ignores = self.server.options.ignores
        options = body.get("stream_options") or {}
        self.streams = bool(body.get("stream"))
        self.usage = bool(options.get("include_usage")) and not self.server.strikes("no_usage", self.number)
        self.continuous = bool(options.get("continuous_usage_stats"))
        self.token_ids = bool(body.get("return_token_ids")) and "return_token_ids" not in ignores
        self.pending = b""
        self.held = 0
        self.dead = False

    def begin(self, job: Job) -> None:
        self.kind = "chat.completion.chunk" if self.chat else "text_completion"
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{job.id}"
        self.head = (
            f'{{"id":"{self.id}","object":"{self.kind}","created":{int(time.time())},'
            f'"model":"{self.server.options.model}","choices":['
        )
        if not self.streams:
            return
        self.framed = not self.server.has("until_close")
        framing = "transfer-encoding: chunked" if self.framed else "connection: close"
        head = "HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        self.write(f"{head}{framing}\r\n\r\n".encode())
        if self.chat:
            ids = f',"prompt_token_ids":{json.dumps(self.prompt)},"prompt_text":null' if self.token_ids else ""
            self.role = (
                f'{self.head}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,'
                f'"finish_reason":null}}]{ids}}}'
            )

    def write(self, data: bytes) -> None:
        if not self.dead and not self.connection.transport.is_closing():
            self.connection.transport.write(data)

    def event(self, text: str | bytes) -> None:
        """One server-sent event as one chunk."""
        data = text.encode() if isinstance(text, str) else text
        payload = b"data: " + data + b"\n\n"
        if self.server.has("odd_events"):
            payload = b": keep-alive\r\n\r\nid: 7\r\ndata:" + data + b"\r\n\r\n"
        framed = b"%x\r\n%b\r\n" % (len(payload), payload) if self.framed else payload
        if self.server.has("coalesced"):
            self.pending += framed
            self.held += 1
            if self.held < self.server.amount("coalesced", 8):
                return
            framed, self.pending, self.held = self.pending, b"", 0
        if self.server.has("split_bytes"):
            for at in range(0, len(framed), 7):
                self.write(framed[at : at + 7])
            return
        self.write(framed)

    def token(self, job: Job, last: bool) -> None:
        """One more token of the answer; faults strike here."""
        if not self.streams:
            if last:
                self.whole(job)
            return
        server, produced = self.server, job.produced
        if self.dead:
            return
        middle = produced == max(1, job.max_tokens // 2)
        if middle and server.strikes("stream_breaks", self.number):
            self.dead = True
            self.connection.abort()
            return
        if middle and server.strikes("error_event", self.number):
            self.event(
                '{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}'
            )
            self.end(job)
            return
        if middle and server.strikes("truncated", self.number):
            self.end(job, done=False)
            return
        if middle and server.strikes("garbage_event", self.number):
            self.event('{"id": nonsense')
        if middle and server.strikes("stream_stalls", self.number):
            self.dead = True
            server.engine.abort(job)
            return
        self.event(self.chunk(job, last))
        if last:
            if self.usage:
                self.event(self.usage_chunk(job))
            self.end(job)

    def end(self, job: Job, done: bool = True) -> None:
        if done:
            self.event("[DONE]")
        if self.pending:
            self.write(self.pending)
        if self.framed:
            self.write(b"0\r\n\r\n")
        else:
            self.connection.transport.close()
        self.dead = True
        self.server.engine.abort(job)
        self.connection.finished()

    def chunk(self, job: Job, last: bool) -> str:
        server = self.server
        token = 300 + job.produced % 500
        text = f"{token:04d}"
        if server.has("odd_events"):
            text = '\u2028\u00e9\U0001f600 \\"token_ids\\":[1,2,3]'
        if job.produced == 2 and server.has("huge_lines"):
            text = "x" * int(server.amount("huge_lines", 2_000_000))
        reason = ("null", f'"{"length" if job.produced == job.max_tokens else "stop"}"')[last]
        if last and server.strikes("no_finish_reason", self.number):
            reason = "null"
        ids = f',"token_ids":[{token}]' if self.token_ids else ""
        usage = ""
        if self.continuous:
            usage = f',"usage":{json.dumps(self.counts(job), separators=(",", ":"))}'
        at = f',"at":{time.perf_counter():.7f}' if server.options.stamps else ""
        if self.chat:
            if job.produced == 1:
                self.event(self.role)
            stop = ',"stop_reason":null' if last else ""
            return (
                f'{self.head}{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{reason}'
                f"{stop}{ids}}}]{usage}{at}}}"
            )
        prompt_ids = ""
        if self.token_ids:
            echoed = json.dumps(self.prompt, separators=(",", ":")) if job.produced == 1 else "null"
            prompt_ids = f',"prompt_token_ids":{echoed}'
        return (
            f'{self.head}{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{reason},"stop_reason":null'
            f"{prompt_ids}{ids}}}]{usage}{at}}}"
        )

    def counts(self, job: Job) -> dict[str, Any]:
        prompt, produced = len(job.prompt), job.produced
        if self.server.strikes("wrong_prompt_tokens", self.number):
            prompt += 27
        if self.server.strikes("wrong_completion_tokens", self.number):
            produced = max(0, produced - 3)
        counts: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + produced,
            "completion_tokens": produced,
        }
        if self.server.options.prompt_tokens_details:
            counts["prompt_tokens_details"] = {"cached_tokens": job.cached}
        return counts

    def usage_chunk(self, job: Job) -> str:
        counts = json.dumps(self.counts(job), separators=(",", ":"))
        return f'{self.head}],"usage":{counts},"system_fingerprint":"{FINGERPRINT}"}}'

    def whole(self, job: Job) -> None:
        """An answer that is not streamed."""
        message = {"text": "x"} if not self.chat else {"message": {"role": "assistant", "content": "x"}}
        choice = {"index": 0, **message, "finish_reason": "length"}
        value = {"id": self.id, "object": self.kind, "choices": [choice], "usage": self.counts(job)}
        self.connection.reply_json(200, value)
        self.connection.finished()


def later(delay_s: float, what: Callable[[], None]) -> None:
    """Now, or after a delay."""
    if delay_s <= 0:
        what()
    else:
        asyncio.get_running_loop().call_later(delay_s, what)
