"""Talks to an echo over WebSocket, each word only after the last came back."""

import asyncio
import sys

WORDS = ["one", "two", "three"]


# Not its blocking client: that reads and writes TLS in two threads at once, which
# Python's ssl module cannot take before 3.13, and hangs now and then.
def with_websockets(url):
    from websockets.asyncio.client import connect

    async def talk():
        async with connect(url) as socket:
            answers = []
            for word in WORDS:
                await socket.send(word)
                answers.append(await socket.recv())
            return answers

    return asyncio.run(talk())


def with_aiohttp(url):
    import aiohttp

    async def talk():
        async with aiohttp.ClientSession(trust_env=True) as session:
            async with session.ws_connect(url) as socket:
                answers = []
                for word in WORDS:
                    await socket.send_str(word)
                    answers.append(await socket.receive_str())
                return answers

    return asyncio.run(talk())


print(*globals()["with_" + sys.argv[1]](sys.argv[2]))
