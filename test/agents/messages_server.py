"""A server that speaks Anthropic's Messages API over real HTTP, as JSON and as server-sent events, from a script.

It is as strict as the API where an agent loop can go wrong: the key, the alternation of roles, one result for each
call, no empty message, no forced tool. A request that breaks a rule is answered with 400, and so fails the test.
"""

import contextlib
import json
import threading

from dataclasses import dataclass
from dataclasses import field
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer

KEY = "sk-ant-test-0123456789"
MODEL = "claude-opus-5-5"


@dataclass(frozen=True)
class Reply:
    """One answer of the model: its content, why it stopped, and how the connection behaves.

    `cut` ends the connection after so many events; `bad_json` breaks the JSON of the last call's input.
    """

    content: tuple = ()
    stop: str = ""
    cut: int | None = None
    bad_json: bool = False
    details: dict | None = None
    usage: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An HTTP error in place of an answer."""

    status: int
    kind: str
    message: str = "as scripted"
    headers: dict = field(default_factory=lambda: {"retry-after-ms": "1"})


def says(text):
    return {"type": "text", "text": text}


def thinks(text=""):
    return {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}


def calls(tool, /, **given):
    return {"type": "tool_use", "name": tool, "input": given}


def answers(*content, **options):
    return Reply(tuple(content), **options)


@dataclass
class Script:
    """What the server will answer, in order, and what it was asked. A callable reply is given the request.

    In place of a list there may be one callable for all requests. An empty `key` takes any.
    """

    replies: object
    requests: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    counted: int = 1000
    models: tuple = (MODEL,)
    strict: bool = True
    key: str = KEY

    def next(self, body):
        self.requests.append(body)
        if callable(self.replies):
            return self.replies(body)
        if not self.replies:
            return Failure(400, "invalid_request_error", "the script is at its end")
        reply = self.replies.pop(0)
        return reply(body) if callable(reply) else reply


@contextlib.contextmanager
def serving(script, port=0):
    """Runs the server; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(script))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(script):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            path = self.path.split("?")[0]
            if path == "/v1/models":
                data = [_model(name) for name in script.models]
                self._json(200, {"data": data, "has_more": False, "first_id": None, "last_id": None})
            elif path.startswith("/v1/models/") and path.rsplit("/", 1)[1] in script.models:
                self._json(200, _model(path.rsplit("/", 1)[1], script.strict))
            else:
                self._fail(Failure(404, "not_found_error", path))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            given = self.headers.get("x-api-key"), self.headers.get("authorization", "").removeprefix("Bearer ")
            if script.key not in given and script.key:
                return self._fail(Failure(401, "authentication_error", "invalid x-api-key"))
            if problem := check(body):
                script.problems.append(problem)
                return self._fail(Failure(400, "invalid_request_error", problem))
            if self.path.split("?")[0] == "/v1/messages/count_tokens":
                return self._json(200, {"input_tokens": script.counted})
            reply = script.next(body)
            if isinstance(reply, Failure):
                return self._fail(reply)
            message = _message(reply, len(script.requests), body)
            return self._stream(reply, message) if body.get("stream") else self._json(200, message)

        def _json(self, status, value, headers={}):
            data = json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"content-type": "application/json", **headers}.items():
                self.send_header(name, text)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _fail(self, failure):
            error = {"type": "error", "error": {"type": failure.kind, "message": failure.message}}
            self._json(failure.status, error, failure.headers)

        def _stream(self, reply, message):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for number, event in enumerate(_events(message, reply.bad_json)):
                if number == reply.cut:
                    self.close_connection = True
                    return
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

    return Handler


def _model(name, strict=True):
    no, yes = {"supported": False}, {"supported": True}
    capabilities = {
        **{key: no for key in ("batch", "citations", "code_execution", "image_input", "pdf_input", "server_tools")},
        "effort": {**no, **{key: no for key in ("low", "medium", "high", "max", "xhigh")}},
        "thinking": {**yes, "types": {"adaptive": yes, "enabled": no}},
        "structured_outputs": {"supported": strict},
        "context_management": {"supported": strict},
    }
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-09-22T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 128_000,
        "capabilities": capabilities,
    }


def _message(reply, number, body):
    content = [
        {**block, "id": f"toolu_{number}_{i}"} if block["type"] == "tool_use" else block
        for i, block in enumerate(reply.content)
    ]
    has_calls = any(block["type"] == "tool_use" for block in content)
    usage = {
        "input_tokens": len(json.dumps(body["messages"][-1])) // 4,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": len(json.dumps(body["messages"][:-1])) // 4,
        "output_tokens": len(json.dumps(content)) // 4,
        **reply.usage,
    }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reply.stop or ("tool_use" if has_calls else "end_turn"),
        "stop_sequence": None,
        "stop_details": reply.details,
        "usage": usage,
    }


def _events(message, bad_json):
    start = {**message, "content": [], "stop_reason": None, "stop_details": None}
    start["usage"] = {**message["usage"], "output_tokens": 1}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _opening(block)}
        for delta in _deltas(block, bad_json):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def _opening(block):
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case _:
            return {**block, "input": {}}


def _deltas(block, bad_json):
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": part} for part in _parts(block["text"]))
        case "thinking":
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            text = json.dumps(block["input"]) if not bad_json else '{"path": nope'
            yield from ({"type": "input_json_delta", "partial_json": part} for part in _parts(text))


def _parts(text, size=400):
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


def check(body):
    """What the API would not take about a request, "" if nothing."""
    messages = body["messages"]
    if body.get("tool_choice", {"type": "auto"})["type"] in ("any", "tool"):
        return "tool_choice: forced tool use is not supported on this model"
    if messages[0]["role"] != "user":
        return "messages: the first message must be a user's"
    for message in messages:
        if not message["content"]:
            return "messages: content must not be empty"
    expected = []
    for position, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else [says(message["content"])]
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if given != expected:
            return (
                f"messages.{position}: tool_use ids without tool_result blocks immediately after: {expected}, {given}"
            )
        expected = [block["id"] for block in blocks if block["type"] == "tool_use"]
    last = messages[-1]
    if last["role"] == "assistant" and not any(block["type"] == "server_tool_use" for block in last["content"]):
        return "this model does not support assistant message prefill; the conversation must end with a user message"
    for tool in body.get("tools", ()):
        schema = tool["input_schema"]
        if schema["type"] != "object" or tool.get("strict") and schema.get("additionalProperties") is not False:
            return f"tools: {tool['name']} has a schema that can't be held to"
    return ""
