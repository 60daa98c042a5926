"""Calls an echo over gRPC, once and as a stream in both directions, in which
each word is sent only after the last came back."""

import queue
import sys

import grpc

kind, target = sys.argv[1:]
if kind == "secure":
    channel = grpc.secure_channel(target, grpc.ssl_channel_credentials())
else:
    channel = grpc.insecure_channel(target)

with channel:
    once = channel.unary_unary("/greeting.Greeter/Say")
    print(once(b"hello", timeout=60).decode())

    words = queue.Queue()
    stream = channel.stream_stream("/greeting.Greeter/Talk")
    answers = stream(iter(words.get, None), timeout=60)
    for word in [b"one", b"two", b"three"]:
        words.put(word)
        print(next(answers).decode())
    words.put(None)
    assert list(answers) == []
