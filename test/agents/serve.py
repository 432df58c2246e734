"""`python test/agents/serve.py STORY`: the scripted server from the command line, to use the agents by hand.

It takes any key, prints a line for each request, and goes on until it is interrupted.
"""

import argparse
import time

from messages_server import Script
from messages_server import serving
from stories import FAULTS
from stories import STORIES
from stories import story
from stories import who


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("story", choices=STORIES)
    parser.add_argument(
        "--faults", default="", help=f"what befalls the first answers: ok, {', '.join(FAULTS)}; N*FAULT"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long an answer takes")
    given = parser.parse_args()
    reply = story(given.story, list(_faults(given.faults)))

    def answer(body):
        time.sleep(given.seconds)
        found = reply(body)
        print(f"{who(body)}: {len(body['messages'])} messages -> {_short(found)}", flush=True)
        return found

    script = Script(answer, key="")
    with serving(script, given.port) as url:
        print(f"export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=x", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


def _faults(text):
    for item in filter(None, text.split(",")):
        count, _, fault = item.rpartition("*")
        assert fault in FAULTS or fault == "ok", f"there is no fault '{fault}'"
        yield from [fault] * int(count or 1)


def _short(reply):
    blocks = [block.get("name") or block["type"] for block in getattr(reply, "content", ())]
    odd = [
        f"{name} {value}"
        for name, value in vars(reply).items()
        if name in ("status", "stop", "cut", "bad_json") and value
    ]
    return ", ".join([*blocks, *odd])


main()
