"""Fetches URLs with the library that is named, and prints the bodies.

Every URL is tried; the status tells whether one could not be had.
"""

import asyncio
import sys
import traceback


def with_urllib(url):
    import urllib.request

    return urllib.request.urlopen(url).read().decode()


def with_requests(url):
    import requests

    answer = requests.get(url)
    answer.raise_for_status()
    return answer.text


def with_httpx(url):
    import httpx

    return httpx.get(url).raise_for_status().text


def with_httpx_async(url):
    import httpx

    async def get():
        async with httpx.AsyncClient() as client:
            return (await client.get(url)).raise_for_status().text

    return asyncio.run(get())


def with_aiohttp(url):
    import aiohttp

    async def get():
        async with aiohttp.ClientSession(trust_env=True, raise_for_status=True) as session:
            async with session.get(url) as answer:
                return await answer.text()

    return asyncio.run(get())


get = globals()["with_" + sys.argv[1]]
status = 0
for url in sys.argv[2:]:
    try:
        print(url + ":", get(url))
    except Exception:
        traceback.print_exc()
        status = 1
sys.exit(status)
