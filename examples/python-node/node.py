#!/usr/bin/env python3
"""A node for perfrun in Python's standard library: plain TCP, bandwidth and ping.

It speaks the node contract (docs/reference/node-contract.md) and the wire of perfrun's stack `raw`, where each
stream is a TCP connection. docs/how-to/write-a-node.md leads through it.
"""
import argparse, base64, hmac, http.server, json, os, platform, resource, signal, socket, struct, sys, threading, time, zlib
from urllib.parse import parse_qs, urlparse

STATES = ["preparing", "ready", "running", "finished"]
PERF, PING = "/perf/1.0.0", "/ipfs/ping/1.0.0"
CAPABILITIES = {"wire": "raw", "transports": {"tcp": {}}, "workloads": ["bandwidth", "ping"],
                "protocols": [PERF, PING], "roles": ["server", "client"]}
LARGEST_BODY = 4 << 20


class Failed(Exception):
    """Why a trial failed: a reason of the contract, and a message for people."""
    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


# --- What goes over a stream --------------------------------------------------------------------------------

class Stream:
    """A connection that counts its payload, and notes when bytes arrived."""
    def __init__(self, sock, trial, chunk):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.trial, self.zeros, self.buffer = sock, trial, memoryview(bytes(chunk)), bytearray(chunk)
        self.received, self.first, self.last, self.first_bytes = 0, None, None, 0
        trial.sockets.append(sock)

    def exactly(self, count):
        """Reads `count` bytes, which are not payload. Fewer at the end of the stream."""
        data = b""
        while len(data) < count and (more := self.sock.recv(count - len(data))):
            data += more
        return data

    def send(self, count, until=None):
        """Sends a number of bytes, or as much as passes until a moment. Returns how much that was."""
        sent = 0
        while time.monotonic_ns() < until if until else sent < count:
            more = self.sock.send(self.zeros if until else self.zeros[:min(count - sent, len(self.zeros))])
            sent += more
            self.trial.add(sent=more)
        return sent

    def once(self, room):
        """Reads payload once. Returns 0 at the end of the stream."""
        got = self.sock.recv_into(self.buffer, min(room, len(self.buffer)))
        if got:
            self.last = time.monotonic_ns()
            if self.first is None:
                self.first, self.first_bytes = self.last, got
            self.received += got
            self.trial.add(received=got)
        return got

    def receive(self, most=sys.maxsize):
        """Reads payload until the end of the stream, or until there are `most` bytes."""
        left = most
        while left > 0 and (got := self.once(left)):
            left -= got
        return most - left

    def receive_until(self, moment):
        """Reads payload until a moment, up to which the receiver was ready: a stall at the end counts."""
        try:
            while (left := moment - time.monotonic_ns()) > 0:
                self.sock.settimeout(left / 1e9)
                if self.once(sys.maxsize) == 0:
                    raise Failed("TooFewBytes", f"the peer ended an endless download after {self.received} bytes")
        except TimeoutError:
            self.last = moment if self.first else None
        self.sock.settimeout(None)


ENDLESS = b"\xff" * 8  # the announced length of a download that the client will cut off


def serve_perf(stream):
    header = stream.exactly(8)
    if len(header) < 8:
        raise Failed("TooFewBytes", f"the peer ended the stream after {len(header)} of 8 bytes of the perf header")
    stream.receive()
    try:
        stream.send(struct.unpack(">Q", header)[0])
        stream.sock.shutdown(socket.SHUT_WR)
    except ConnectionError:
        if header != ENDLESS:
            raise


def run_perf(stream, up, down, up_until=None, down_until=None):
    """One exchange of /perf/1.0.0. Returns when it began, was written, was consumed, and was requested, and how much
    was sent."""
    stream.sock.sendall(ENDLESS if down_until else struct.pack(">Q", down))
    begun = time.monotonic_ns()
    sent = stream.send(up, up_until)
    requested = time.monotonic_ns()
    stream.sock.shutdown(socket.SHUT_WR)
    written = time.monotonic_ns()
    if down_until:
        stream.receive_until(down_until)
        return begun, written, stream.first, requested, sent
    if stream.receive(down) < down:
        raise Failed("TooFewBytes", f"the peer ended the stream after {stream.received} of {down} bytes of the download")
    if stream.sock.recv(1):
        raise Failed("UnexpectedBytes", f"the peer sent more than the {down} bytes of the download that were due")
    return begun, written, stream.first or time.monotonic_ns(), requested, sent


def serve_ping(stream):
    while len(payload := stream.exactly(32)) == 32:
        stream.trial.add(received=32)
        stream.sock.sendall(payload)
        stream.trial.add(sent=32)
    if payload:
        raise Failed("TooFewBytes", f"the peer ended the stream after {len(payload)} of 32 bytes of the ping")


def round_trip(stream, number):
    payload = struct.pack(">I28x", number)
    stream.sock.sendall(payload)
    stream.trial.add(sent=32)
    echo = stream.exactly(32)
    stream.trial.add(received=len(echo))
    if len(echo) < 32:
        raise Failed("TooFewBytes", f"the peer ended the stream after {len(echo)} of 32 bytes of the ping")
    if echo != payload:
        raise Failed("WrongEcho", "the peer echoed other bytes than it was sent")


# --- What is measured ---------------------------------------------------------------------------------------

def histogram(values):
    """Nanoseconds as an HDR histogram with three digits: base64 of its compressed V2 encoding."""
    counts = {}
    for value in values:
        shift = max(0, value.bit_length() - 11)
        index = (shift << 10) + (value >> shift)
        counts[index] = counts.get(index, 0) + 1
    payload, next_index = b"", 0
    for index in sorted(counts):
        if index > next_index:
            payload += varint(-(index - next_index))
        payload += varint(counts[index])
        next_index = index + 1
    header = struct.pack(">IIIIQQd", 0x1C849313, len(payload), 0, 3, 1, max([2, *values]) * 2, 1.0)
    packed = zlib.compress(header + payload)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode()


def varint(number):
    """ZigZag LEB128, at most nine bytes."""
    number, data = (number << 1) ^ (number >> 63), b""
    while number > 0x7F:
        data, number = data + bytes([number & 0x7F | 0x80]), number >> 7
    return data + bytes([number])


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def transfer(streams, requested=None):
    """What arrived on some streams: from the first read, or from the request, until the last."""
    arrived = [stream for stream in streams if stream.first is not None]
    if not arrived:
        return {"bytes": 0, "seconds": 0.0} if requested else None
    first, last = min(s.first for s in arrived), max(s.last for s in arrived)
    first_bytes = min(arrived, key=lambda s: s.first).first_bytes
    total = sum(s.received for s in arrived)
    return {"bytes": total, "seconds": (last - (requested or first)) / 1e9, "bytesAfterFirst": total - first_bytes,
            "firstToLastSeconds": (last - first) / 1e9}


# --- The life of a trial ------------------------------------------------------------------------------------

class Trial:
    def __init__(self, node, request):
        self.node, self.request, self.parameters = node, request, request["parameters"]
        self.changed = threading.Condition()
        self.state, self.addresses, self.outcome, self.cut = "preparing", [], None, None
        self.start_at, self.finishing = None, False
        self.sockets, self.findings, self.lock = [], {}, threading.Lock()
        self.counts = {"sent": 0, "received": 0, "connections": 0, "streams": 0}
        self.usage, self.rss = resource.getrusage(resource.RUSAGE_SELF), resident()
        threading.Thread(target=self.run, daemon=True).start()
        threading.Timer(request["timeoutSeconds"], self.cut_short, ("Timeout", "not completed in time")).start()

    def add(self, **counts):
        with self.lock:
            for name, count in counts.items():
                self.counts[name] += count

    def change(self, **fields):
        with self.changed:
            self.__dict__.update(fields)
            self.changed.notify_all()

    def cut_short(self, reason, message):
        """Ends the trial from outside: its sockets fail, and the reason is not what they report."""
        with self.changed:
            if self.state == "finished" or self.cut:
                return
            self.cut = Failed(reason, message)
            self.changed.notify_all()
        self.close()

    def close(self):
        """Closes all sockets. Only a shutdown wakes a thread that waits in accept or recv."""
        for sock in list(self.sockets):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is not connected
            sock.close()

    def wait(self, ready):
        with self.changed:
            self.changed.wait_for(lambda: ready() or self.cut)
            if self.cut:
                raise self.cut

    def run(self):
        failure = None
        try:
            self.serve() if self.request["side"] == "server" else self.dial(self.request["side"]["client"])
        except Failed as failed:
            failure = failed
        except OSError as error:
            failure = Failed("StreamFailed", f"the stream broke: {error}")
        except Exception as error:  # a fault of this program, which must not end the node
            failure = Failed("Internal", repr(error))
        failure = self.cut or failure
        self.close()
        used, before = resource.getrusage(resource.RUSAGE_SELF), self.usage
        measured = {
            "bytesSent": self.counts["sent"], "bytesReceived": self.counts["received"], "failures": 0, "seconds": 0.0,
            "connections": self.counts["connections"], "streams": self.counts["streams"],
            "resources": {
                "cpuUserSeconds": used.ru_utime - before.ru_utime, "cpuSystemSeconds": used.ru_stime - before.ru_stime,
                "rssStartBytes": self.rss, "rssPeakBytes": max(self.rss, resident()),
                "contextSwitchesVoluntary": used.ru_nvcsw - before.ru_nvcsw,
                "contextSwitchesInvoluntary": used.ru_nivcsw - before.ru_nivcsw,
            }, **self.findings}
        outcome = {"measured": measured}
        if failure:
            outcome["failure"] = {"reason": failure.reason, "message": str(failure)}
        self.change(state="finished", outcome=outcome)

    def serve(self):
        """Listens until the request to finish. A stream that fails does not disturb the others."""
        ip = self.node.listen_ip
        listener = socket.create_server((ip, 0), backlog=1024, family=family(ip))
        self.sockets.append(listener)
        streams, threads, failures = [], [], []

        def stream(sock):
            try:
                self.add(connections=1, streams=1)
                streams.append(one := Stream(sock, self, self.chunk()))
                serve_perf(one) if self.parameters["workload"] == "bandwidth" else serve_ping(one)
            except (Failed, OSError) as error:
                failures.append(error)
            finally:
                sock.close()

        def accept():
            while not self.finishing:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=stream, args=(sock,), daemon=True))
                threads[-1].start()

        threading.Thread(target=accept, daemon=True).start()
        self.change(state="ready", addresses=["/ip%d/%s/tcp/%d" % (6 if ":" in ip else 4, ip, listener.getsockname()[1])])
        self.wait(lambda: self.finishing)
        for thread in threads:
            thread.join(2)
        if arrived := transfer(streams):
            self.findings["upload"] = arrived
        if failures:
            raise failures[0]

    def chunk(self):
        size = str(self.parameters.get("chunkBytes", 1024))
        units = {"Ki": 1 << 10, "Mi": 1 << 20}
        return int(size[:-2]) * units[size[-2:]] if size[-2:] in units else int(size)

    def connect(self, address):
        _, _, host, _, port = address.split("/")
        begun = time.monotonic_ns()
        try:
            sock = socket.create_connection((host, int(port)), timeout=10)
        except OSError as error:
            raise Failed("DialFailed", f"failed to dial {address}: {error}") from error
        sock.settimeout(None)
        return Stream(sock, self, self.chunk()), time.monotonic_ns() - begun

    def dial(self, client):
        """Connects each peer, waits for the start, and runs the workload: a thread for each stream."""
        each = self.parameters.get("streams", 1)
        streams, dials = [], []
        for peer in range(client["peers"]):
            stream, took = self.connect(client["servers"][peer % len(client["servers"])])
            self.add(connections=1)
            streams.append(stream)
            dials.append(took)
        self.change(state="ready")
        self.wait(lambda: self.start_at is not None)
        time.sleep(max(0, self.start_at - time.monotonic_ns()) / 1e9)
        self.usage, self.rss = resource.getrusage(resource.RUSAGE_SELF), resident()
        self.change(state="running")
        begun = time.monotonic_ns()
        self.findings = {"startedNanoseconds": begun, "histograms": {"handshakeEstablished": histogram(dials)}}
        for peer in range(client["peers"]):
            streams += [self.connect(client["servers"][peer % len(client["servers"])])[0] for _ in range(each - 1)]
        self.add(streams=len(streams))
        self.bandwidth(streams) if self.parameters["workload"] == "bandwidth" else self.ping(streams)
        self.findings["seconds"] = (time.monotonic_ns() - begun) / 1e9

    def parallel(self, streams, work):
        results, failures = [], []

        def run(stream):
            try:
                results.append(work(stream))
            except (Failed, OSError) as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(stream,), daemon=True) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return results

    def bandwidth(self, streams):
        direction, amount = self.parameters["direction"], self.parameters["amount"]
        count, until = amount.get("count", 0), None
        if "seconds" in amount:
            until = time.monotonic_ns() + int(amount["seconds"] * 1e9)
        up = (count, until) if direction != "download" else (0, None)
        down = (count, until) if direction != "upload" else (0, None)
        exchanges = self.parallel(streams, lambda stream: run_perf(stream, up[0], down[0], up[1], down[1]))
        begun, written, consumed, requested, sent = zip(*exchanges)
        if direction != "download":
            end = max(consumed) if self.parameters["timing"] == "strict" else max(written)
            self.findings["upload"] = {"bytes": sum(sent), "seconds": (end - min(begun)) / 1e9}
        if direction != "upload":
            self.findings["download"] = transfer(streams, min(requested))

    def ping(self, streams):
        def trips(stream):
            round_trip(stream, 0)  # also wakes the server's thread, and is not counted
            times = []
            for number in range(self.parameters["count"]):
                begun = time.monotonic_ns()
                round_trip(stream, number)
                times.append(time.monotonic_ns() - begun)
                time.sleep(self.parameters["intervalSeconds"])
            return times

        times = [time for peer in self.parallel(streams, trips) for time in peer]
        self.findings["histograms"]["roundTrip"] = histogram(times)


# --- The control port ---------------------------------------------------------------------------------------

def check(request):
    """Raises ValueError with what must be true of a request."""
    parameters, side = request["parameters"], request["side"]
    amount = parameters.get("amount", {"count": 1})
    for right, words in [
        (request["stack"] == "python-tcp", "stack must be python-tcp"),
        (request["transport"] == "tcp", "transport must be tcp"),
        (0 < request["timeoutSeconds"] <= 366 * 86400, "timeoutSeconds must be more than 0 and at most a year"),
        (parameters["workload"] in CAPABILITIES["workloads"], "workload must be bandwidth or ping"),
        (parameters.get("protocol", PERF) == PERF, f"protocol must be {PERF}"),
        ("seconds" in amount and 0 < amount["seconds"] <= 366 * 86400 or isinstance(amount.get("count"), int),
         "amount must be a count, or seconds of at most a year"),
        (1 <= parameters.get("streams", 1) <= 4096, "streams must be 1 to 4096"),
        (side == "server" or side["client"]["servers"], "side must be server, or client with servers"),
        (side == "server" or 1 <= side["client"]["peers"] <= 1024, "peers must be 1 to 1024"),
    ]:
        if not right:
            raise ValueError(words)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, text=None):
        data = (text or "").encode() if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4" if body is None else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, **more):
        self.answer(status, {"message": message, **more})

    def is_authorized(self):
        token = self.server.node.token
        given = [self.headers.get("Authorization", ""), "Bearer " + self.headers.get("X-Perfrun-Token", "")]
        return any([hmac.compare_digest(one.encode(), b"Bearer " + token) for one in given])

    def is_superseded(self, epoch):
        """Whether another conductor has taken over from the one that calls."""
        node = self.server.node
        with node.lock:
            node.epoch = max(node.epoch, epoch)
            return epoch < node.epoch

    def handle_call(self):
        node, url = self.server.node, urlparse(self.path)
        if self.command == "GET" and url.path in ("/healthz", "/readyz"):
            return self.answer(200, text="ok\n")
        if self.command == "GET" and url.path == "/metrics":
            return self.answer(200, text=f"perfrun_process_resident_memory_bytes {resident()}\n")
        length = int(self.headers.get("Content-Length") or 0)
        if not self.is_authorized() or length > LARGEST_BODY:
            self.close_connection = True  # the body is not read
            return self.refuse(401, "this call needs the run's token") if not self.is_authorized() else self.refuse(
                400, "a body has at most 4 MiB")
        body = self.rfile.read(length)
        epoch = self.headers.get("X-Perfrun-Epoch", "0")
        if not epoch.isdecimal() or int(epoch) >= 1 << 63:
            return self.refuse(400, "the header X-Perfrun-Epoch must be a number below 2^63")
        if self.is_superseded(int(epoch)):
            return self.refuse(412, f"this call is of epoch {epoch}, and a conductor of epoch {node.epoch} has taken over")
        path = url.path.strip("/").split("/")
        if path in (["v1", "info"], ["v1", "clock"]):
            if self.command != "GET":
                return self.refuse(405, "this call does not have this method")
            return self.answer(200, node.info if path[1] == "info" else {"nanoseconds": time.monotonic_ns()})
        calls = {("PUT", 3): self.put, ("GET", 3): self.get, ("DELETE", 3): self.delete, ("PUT", 4): self.tell}
        if path[:2] != ["v1", "trials"] or len(path) not in (3, 4) or path[3:] not in ([], ["start"], ["finish"]):
            return self.refuse(404, "unknown call")
        call = calls.get((self.command, len(path)))
        if not call:
            return self.refuse(405, "this call does not have this method")
        try:
            call(path, body, parse_qs(url.query))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.refuse(400, f"unable to read the request: {error!r}")

    do_GET = do_PUT = do_DELETE = do_POST = do_PATCH = do_HEAD = handle_call

    def put(self, path, body, _):
        node, request = self.server.node, json.loads(body)
        check(request)
        with node.lock:
            known = node.trials.get(path[2])
            busy = next((id for id, trial in node.trials.items() if trial.state != "finished"), None)
            if known:
                same = known.request == request
                return self.answer(200) if same else self.refuse(409, "there is a trial of this id with another request")
            if busy:
                return self.refuse(423, f"trial {busy} is in progress", trial=busy)
            if node.stopping:
                return self.refuse(503, "the node is stopping")
            if len(node.trials) >= 1024:
                return self.refuse(507, "the node has 1024 ended trials: delete those that were collected")
            node.trials[path[2]] = Trial(node, request)
        self.answer(201)

    def found(self, path):
        trial = self.server.node.trials.get(path[2])
        if not trial:
            self.refuse(404, f"unknown trial {path[2]!r}")
        return trial

    def get(self, path, _, query):
        if trial := self.found(path):
            after = STATES.index(query.get("after", ["running"])[0])
            wait = min(max(float(query.get("wait", ["0"])[0]), 0), 60)
            with trial.changed:
                trial.changed.wait_for(lambda: STATES.index(trial.state) > after, wait)
            status = {"state": trial.state, "addresses": trial.addresses, "bytesSent": trial.counts["sent"],
                      "bytesReceived": trial.counts["received"]}
            if trial.outcome:
                status["outcome"] = trial.outcome
            self.answer(200, status)

    def tell(self, path, body, _):
        at = int(json.loads(body)["atNanoseconds"]) if path[3] == "start" else None
        if trial := self.found(path):
            if at is None:
                trial.change(finishing=True)
            elif trial.start_at is None:
                trial.change(start_at=at)
            self.answer(204)

    def delete(self, path, *_):
        node = self.server.node
        with node.lock:
            trial = self.found(path)
            if not trial:
                return
            if trial.state == "finished":
                del node.trials[path[2]]
        trial.cut_short("Cancelled", "cancelled on request")
        self.answer(204)


class Node:
    def __init__(self, args):
        self.listen_ip, self.trials, self.lock, self.stopping = args.listen_ip, {}, threading.Lock(), False
        self.epoch = 0  # the largest one that a call had
        with open(args.token_file, "rb") as file:
            self.token = file.read().strip()
        with open("/proc/sys/kernel/random/boot_id") as boot:
            clock = f"{boot.read().strip()} {os.readlink('/proc/self/ns/time')}"
        version = platform.python_version()
        self.info = {"contract": 1, "version": "1", "stacks": {"python-tcp": f"Python {version}"}, "profile": "release",
                     "capabilities": {"python-tcp": CAPABILITIES}, "listenIp": self.listen_ip, "clock": clock,
                     "host": platform.node(), "kernel": platform.release(), "cpu": platform.processor() or "unknown",
                     "cpus": len(os.sched_getaffinity(0))}

    def stop(self, *_):
        """Ends the trial in progress, lets its outcome be collected, and exits."""
        self.stopping = True
        for trial in list(self.trials.values()):
            trial.cut_short("Stopped", "the node was stopped")
        threading.Timer(1, os._exit, (0,)).start()


def family(ip):
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("call", choices=["control"])
    parser.add_argument("--control", default="0.0.0.0:9090")
    parser.add_argument("--listen-ip", default=os.environ.get("PERFRUN_LISTEN_IP", "0.0.0.0"))
    parser.add_argument("--token-file", default=os.environ.get("PERFRUN_TOKEN_FILE"), required="PERFRUN_TOKEN_FILE" not in os.environ)
    args, _ = parser.parse_known_args()
    node = Node(args)
    host, _, port = args.control.rpartition(":")
    host = host.strip("[]")
    http.server.ThreadingHTTPServer.address_family = family(host)
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler, bind_and_activate=host != "fd")
    if host == "fd":
        server.socket.close()
        server.socket = socket.socket(fileno=int(port))
        server.server_address = server.socket.getsockname()
    else:
        server.socket.listen(256)
    server.node, server.daemon_threads = node, True
    signal.signal(signal.SIGTERM, node.stop)
    signal.signal(signal.SIGINT, node.stop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
