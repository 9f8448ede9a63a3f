"""The node of examples/python-node with one fault, which `perfrun conformance` must find: node.py FOLDER FAULT …"""
import os, sys

folder, fault = sys.argv[1], sys.argv[2]
sys.argv[1:] = sys.argv[3:]
sys.path.insert(0, folder)
import node  # noqa: E402

if fault == "another-contract":
    made = node.Node.__init__
    def init(self, args):
        made(self, args)
        self.info["contract"] = 2
    node.Node.__init__ = init
elif fault == "claims-too-much":
    node.CAPABILITIES["transports"]["quic-v1"] = {}
elif fault == "any-token":
    node.Handler.is_authorized = lambda self: True
elif fault == "any-epoch":
    node.Handler.is_superseded = lambda self, epoch: False
elif fault == "too-few-bytes":
    send = node.Stream.send
    node.Stream.send = lambda self, count, until=None: send(self, count - 1 if count else 0, until)
elif fault == "too-many-bytes":
    send = node.Stream.send
    node.Stream.send = lambda self, count, until=None: send(self, count + 1, until)
elif fault == "miscounts":
    add = node.Trial.add
    node.Trial.add = lambda self, **counts: add(self, **{k: v * 2 if k == "received" else v for k, v in counts.items()})
elif fault == "hangs":
    node.Trial.serve = lambda self: self.wait(lambda: False)
elif fault == "floods":
    answer = node.Handler.answer
    def flood(self, status, body=None, text=None):
        if status == 404:
            body = {"message": "x" * (16 << 20)}
        answer(self, status, body, text)
    node.Handler.answer = flood
elif fault == "leaves-streams-open":
    serve = node.Trial.serve
    def leave(self):
        serve(self)
        self.findings.update(failures=1, errors={"Timeout": 1})
    node.Trial.serve = leave
elif fault == "dies":
    node.Trial.dial = lambda self, client: os._exit(3)
elif fault == "never-cancels":
    node.Trial.cut_short = lambda self, *_: None
elif fault == "early":
    sleep = node.time.sleep
    node.time.sleep = lambda seconds: sleep(0)
elif fault == "wrong-histogram":
    node.histogram = lambda values: "bm90aGluZw=="
else:
    assert fault == "none", fault
node.main()
