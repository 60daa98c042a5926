"""Talks to an echo over WebSocket, each word only after the last came back."""

import asyncio
import sys

WORDS = ["one", "two", "three"]


def with_websockets(url):
    from websockets.sync.client import connect

    with connect(url) as socket:
        for word in WORDS:
            socket.send(word)
            yield socket.recv()


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
