#!/usr/bin/env python3
"""A Cairn tool service in Python with the standard library only.

It shows everything that docs/tools.md asks of a tool service: registering definitions, one shared consumer a tool, heartbeats,
progress, the cancel signal, deadlines, start claims, results. The NATS protocol is spoken by the class Nats below; with
the package nats-py that class is not needed, and the rest stays as it is.

    python3 tool_service.py nats://127.0.0.1:4222

Two tools: text.count (idempotent) counts characters; note.append (not idempotent) appends a line to a file.
"""

import base64
import datetime
import json
import os
import queue
import random
import socket
import sys
import threading
import time
import urllib.parse
import uuid

ACK_WAIT = 5.0  # seconds; the server gives an action to another instance after this long without a sign of life
MAX_DELIVER = 5
DELAYS = (0.1, 0.5, 2.0, 8.0)  # seconds that an action is put back for after its first, second, ... delivery
CONFLICT = (10071, 10164)  # "wrong last sequence": somebody else wrote first
INSTANCE = f"{socket.gethostname()}/{os.getpid()}"


# ---------------------------------------------------------------------------------------------------------------- NATS


class Message:
    def __init__(self, subject, reply, headers, data, status):
        self.subject, self.reply, self.headers, self.data, self.status = subject, reply, headers, data, status


class Nats:
    """As much of the NATS protocol as a tool service needs: CONNECT, PING, SUB, PUB, HPUB, MSG, HMSG."""

    def __init__(self, url):
        u = urllib.parse.urlparse(url)
        self.sock = socket.create_connection((u.hostname, u.port or 4222), timeout=10)
        self.sock.settimeout(None)
        self.file = self.sock.makefile("rb")
        self.lock = threading.Lock()
        self.handlers = {}
        self.next_sid = 0
        self.info = json.loads(self.file.readline().split(b" ", 1)[1])
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "name": "cairn-python-tool"}
        if u.username:
            options["user"], options["pass"] = urllib.parse.unquote(u.username), urllib.parse.unquote(u.password or "")
        self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        self.inbox = "_INBOX." + uuid.uuid4().hex
        self.answers = {}
        threading.Thread(target=self._read, daemon=True).start()
        self.subscribe(self.inbox + ".*", self._answer)

    def _send(self, data):
        with self.lock:
            self.sock.sendall(data)

    def _read(self):
        try:
            while line := self.file.readline():
                parts = line.strip().split()
                if not parts:
                    continue
                verb = parts[0].upper()
                if verb == b"PING":
                    self._send(b"PONG\r\n")
                elif verb in (b"MSG", b"HMSG"):
                    self._message(verb, parts)
                elif verb == b"-ERR":
                    print("NATS:", line.decode(), file=sys.stderr)
        except (OSError, ValueError) as e:
            print("NATS:", e, file=sys.stderr)
        # A supervisor starts the service again. Actions that were under way come again after ACK_WAIT.
        print("connection to NATS lost", file=sys.stderr, flush=True)
        os._exit(1)

    def _message(self, verb, parts):
        subject, sid = parts[1].decode(), parts[2]
        sizes = 2 if verb == b"HMSG" else 1
        reply = parts[3].decode() if len(parts) == 4 + sizes else ""
        body = self.file.read(int(parts[-1]))
        self.file.read(2)
        headers, status = {}, ""
        if verb == b"HMSG":
            n = int(parts[-2])
            lines = body[:n].decode().split("\r\n")
            body = body[n:]
            status = lines[0][len("NATS/1.0"):].strip()
            for h in lines[1:]:
                if ":" in h:
                    k, v = h.split(":", 1)
                    headers[k] = v.strip()
        handler = self.handlers.get(sid)
        if handler:
            handler(Message(subject, reply, headers, body, status))

    def subscribe(self, subject, handler):
        """handler runs on the reading thread: it must be quick and must not wait for answers."""
        with self.lock:
            self.next_sid += 1
            sid = str(self.next_sid).encode()
        self.handlers[sid] = handler
        self._send(b"SUB %s %s\r\n" % (subject.encode(), sid))

    def publish(self, subject, data=b"", headers=None, reply=""):
        if not headers:
            self._send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(data), data))
            return
        h = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n"
        self._send(b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject.encode(), reply.encode(), len(h), len(h) + len(data), h, data))

    def request(self, subject, data=b"", headers=None, timeout=5.0):
        token = uuid.uuid4().hex
        box = self.answers[token] = queue.Queue()
        try:
            self.publish(subject, data, headers, reply=f"{self.inbox}.{token}")
            m = box.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no answer on {subject}") from None
        finally:
            del self.answers[token]
        if m.status.startswith("503"):
            raise ConnectionError(f"nobody answers on {subject}; is the stream missing? create it with: cairn init")
        return m

    def _answer(self, m):
        box = self.answers.get(m.subject.rsplit(".", 1)[1])
        if box:
            box.put(m)

    def api(self, subject, body):
        answer = json.loads(self.request("$JS.API." + subject, json.dumps(body).encode()).data)
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")
        return answer

    def store(self, subject, data, headers=None):
        """Publishes to a stream; True when stored, False when an expected sequence did not fit."""
        answer = json.loads(self.request(subject, data, headers).data)
        if "error" not in answer:
            return True
        if answer["error"].get("err_code") in CONFLICT:
            return False
        raise RuntimeError(f"{subject}: {answer['error']}")


# ------------------------------------------------------------------------------------------------------------ a service


class ToolError(Exception):
    def __init__(self, code, message, retryable=None):
        super().__init__(message)
        self.error = {"code": code, "message": message}
        if retryable is not None:
            self.error["retryable"] = retryable


class Call:
    """What a tool function gets besides its arguments."""

    def __init__(self, service, action, headers):
        self.service, self.action = service, action
        self.idempotency_key = headers.get("Cairn-Idempotency-Key", "")
        self.deadline = parse_time(headers.get("Cairn-Not-After")) or time.time() + 30
        self.cancelled = threading.Event()

    def progress(self, fraction, message):
        a = self.action
        body = {"run_id": a["run_id"], "step_id": a["step_id"], "action_id": a["action_id"], "tool": a["tool"], "fraction": fraction, "message": message}
        self.service.nats.publish("cairn.progress." + a["run_id"], dumps(body))

    def check(self):
        """To be called now and then by long work."""
        if self.cancelled.is_set():
            raise ToolError("cancelled", "the action was cancelled")
        if time.time() > self.deadline:
            raise ToolError("timeout", "the deadline passed")


class Service:
    def __init__(self, nats):
        self.nats = nats
        self.calls = {}  # (run, action) to Call
        self.results = {}  # action subject to its stored result: an action that comes again is answered, not executed
        nats.subscribe("cairn.signal.cancel.*", self.on_cancel)

    def on_cancel(self, m):
        run = m.subject.rsplit(".", 1)[1]
        action = json.loads(m.data).get("action_id", "") if m.data else ""
        for (r, a), call in list(self.calls.items()):
            if r == run and action in ("", a):
                call.cancelled.set()

    def serve(self, definition, function):
        register(self.nats, definition)
        name = definition["name"]
        durable = "tool-" + name.replace(".", "-")
        config = {
            "durable_name": durable, "filter_subject": f"cairn.action.*.*.{name}", "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT * 1e9), "max_deliver": MAX_DELIVER, "max_ack_pending": 1000, "deliver_policy": "all", "replay_policy": "instant",
        }
        self.nats.api(f"CONSUMER.CREATE.CAIRN_ACTIONS.{durable}.{config['filter_subject']}", {"stream_name": "CAIRN_ACTIONS", "config": config})
        threading.Thread(target=self.pull, args=(durable, definition, function), daemon=True).start()

    def pull(self, durable, definition, function):
        slots = threading.Semaphore(8)
        # A delivery comes with the action's subject, not the inbox's: each puller needs a subscription of its own.
        box, inbox = queue.Queue(), "_INBOX." + uuid.uuid4().hex
        self.nats.subscribe(inbox, box.put)
        wish = json.dumps({"batch": 1, "expires": int(1e9)}).encode()
        while True:
            slots.acquire()
            self.nats.publish(f"$JS.API.CONSUMER.MSG.NEXT.CAIRN_ACTIONS.{durable}", wish, reply=inbox)
            try:
                m = box.get(timeout=3)
            except queue.Empty:
                m = None
            if m is None or m.status:  # 404 and 408: there is nothing to do at the moment
                slots.release()
                if m is not None and not m.status.startswith("408"):
                    time.sleep(0.25)
                continue
            threading.Thread(target=self.handle, args=(m, definition, function, slots), daemon=True).start()

    def handle(self, m, definition, function, slots):
        stop = threading.Event()
        threading.Thread(target=self.heartbeat, args=(m, stop), daemon=True).start()
        try:
            done = self.execute(m, definition, function)
            self.nats.publish(m.reply, b"+ACK" if done else nak(m.reply))
        except Exception as e:  # the result could not be stored: later, or by another instance
            print("put back:", e, file=sys.stderr)
            self.nats.publish(m.reply, nak(m.reply))
        finally:
            stop.set()
            slots.release()

    def heartbeat(self, m, stop):
        while not stop.wait(ACK_WAIT / 3):
            self.nats.publish(m.reply, b"+WPI")

    def execute(self, m, definition, function):
        """True: acknowledge the action, its result is stored or somebody else's business."""
        _, _, run, action_id, tool = m.subject.split(".", 4)
        if m.subject in self.results:
            return self.send(m, run, action_id, tool, self.results[m.subject])
        action = json.loads(m.data)
        call = Call(self, action, m.headers)
        late = time.time() > call.deadline
        if not definition.get("idempotent") or m.headers.get("Cairn-Idempotent") == "false":
            claim = {"state": "revoked" if late else "started", "by": INSTANCE}
            if not self.nats.store(f"$KV.CAIRN_CLAIMS.{run}.{action_id}", dumps(claim), {"Nats-Expected-Last-Subject-Sequence": "0"}):
                return True  # somebody else has started it: do nothing
        started, result = time.time(), {}
        self.calls[run, action_id] = call
        try:
            if late:
                raise ToolError("timeout", "not started: the deadline had passed")
            result = {"status": "success", "output": function(action["arguments"], call)}
        except ToolError as e:
            result = {"status": "error", "error": e.error}
        except Exception as e:
            result = {"status": "error", "error": {"code": "internal", "message": repr(e)}}
        finally:
            del self.calls[run, action_id]
        if not late:  # a call that was not started has nobody who executed it
            result |= {"executed_by": INSTANCE, "started_at": format_time(started), "duration": f"{time.time() - started:.6f}s"}
        body = dumps(result)
        if len(body) + 64 * 1024 > self.nats.info["max_payload"]:
            body = dumps({"status": "error", "error": {"code": "output_too_large", "message": f"the result has {len(body)} bytes"}})
        return self.send(m, run, action_id, tool, body)

    def send(self, m, run, action_id, tool, body):
        headers = {h: m.headers[h] for h in ("Cairn-Attempt", "Cairn-Context", "traceparent", "tracestate") if h in m.headers}
        stored = self.nats.store(f"cairn.result.{run}.{action_id}.{tool}", body, headers)
        if stored:
            self.results[m.subject] = body
            if len(self.results) > 1000:
                del self.results[next(iter(self.results))]
        return stored


def register(nats, definition):
    """Puts the definition into the registry: creates the key, or replaces another definition by compare and swap."""
    subject = "$KV.CAIRN_TOOLS." + definition["name"]
    sequence = 0
    while not nats.store(subject, dumps(definition), {"Nats-Expected-Last-Subject-Sequence": str(sequence)}):
        there = nats.api("STREAM.MSG.GET.KV_CAIRN_TOOLS", {"last_by_subj": subject})["message"]
        stored = json.loads(base64.b64decode(there["data"])) if "data" in there else {}
        stored.pop("digest", None)  # the tool router fills it in
        if stored == definition:
            return
        sequence = there["seq"]


def nak(reply):
    """Back into the queue for later: $JS.ACK.<stream>.<consumer>.<deliveries>.…, or with domain and account before."""
    tokens = reply.split(".")
    deliveries = int(tokens[4] if len(tokens) == 9 else tokens[6])
    delay = DELAYS[min(deliveries, len(DELAYS)) - 1] * random.uniform(1, 1.25)
    return b"-NAK " + json.dumps({"delay": int(delay * 1e9)}).encode()


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parse_time(text):
    if not text:
        return None
    head, _, fraction = text.rstrip("Z").partition(".")
    whole = datetime.datetime.strptime(head, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return whole.timestamp() + float("0." + (fraction or "0"))


def format_time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------------------------------------------------------- tools

TEXT_COUNT = {
    "name": "text.count",
    "version": "1.0.0",
    "description": "Counts the characters of a text",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}, "pause": {"type": "number"}}, "required": ["text"], "additionalProperties": False},
    "output_schema": {"type": "object", "properties": {"characters": {"type": "integer"}}, "required": ["characters"]},
    "timeout": "30s",
    "idempotent": True,
}


def text_count(arguments, call):
    end = time.time() + float(arguments.get("pause", 0))
    call.progress(0.5, "counting")
    while time.time() < end:
        call.check()
        time.sleep(0.01)
    return {"characters": len(arguments["text"])}


NOTE_APPEND = {
    "name": "note.append",
    "version": "1.0.0",
    "description": "Appends a line to the notes",
    "input_schema": {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"], "additionalProperties": False},
    "risk": "low",
}


def note_append(arguments, call):
    with open(os.environ.get("NOTES", "notes.txt"), "a", encoding="utf-8") as f:
        f.write(f"{call.idempotency_key} {arguments['line']}\n")
    return None


def main():
    service = Service(Nats(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
    service.serve(TEXT_COUNT, text_count)
    service.serve(NOTE_APPEND, note_append)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
