"""Scripts of waits that stop between two writes: a look at the message repairs what is torn."""

from contextlib import suppress
from hashlib import sha1

import pytest

from penstock import Context, Penstock
from penstock.errors import StoreError
from penstock.stores.redis import database
from penstock.stores.redis.scripts import Script, load_script
from penstock.testing.simulation import Simulation
from tests.extent import LONG
from tests.redis.test_scripts import WRITES
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio
CALLER = b"local call, format, match, sub = redis.call, string.format, string.match, string.sub"
TORN = """
local left, writes = %d, {%s}
local function call(command, ...)
    if writes[command] then
        if left == 0 and redis.call('EXISTS', 'torn') == 0 then
            redis.call('SET', 'torn', 'yes')
            error('torn')
        end
        left = left - 1
    end
    return redis.call(command, ...)
end
local format, match, sub = string.format, string.match, string.sub
"""


class Tear:
    """Stops a script after some of its writes, which the server keeps: the first call that has
    more, from a number of calls on.
    """

    def __init__(self, verb: str, call: int, writes: int) -> None:
        self.verb, self.call, self.writes = verb, call, writes
        self.calls = 0

    def load(self, verb: str) -> Script:
        found = load_script(verb)
        self.calls += verb == self.verb
        if verb != self.verb or self.calls < self.call:
            return found
        names = ", ".join(f"{name} = true" for name in sorted(WRITES))
        assert CALLER in found.text
        text = found.text.replace(CALLER, (TORN % (self.writes, names)).encode())
        return Script(text, sha1(text, usedforsecurity=False).hexdigest().encode(), *found[2:])


class Scene:
    """A task that steps, sleeps, waits for a child and for a signal."""

    def __init__(self) -> None:
        self.app = app = Penstock("sqlite://")
        self.charged = 0

        @app.task(queue="parts")
        def part() -> int:
            return 2

        @app.task(queue="main")
        async def main(context: Context) -> list[int]:
            charge = await context.step("charge", self.charge)
            await context.sleep("30s")
            (child,) = await context.gather(part.call())
            answer = await context.signal("go", timeout="30d", type=int)
            assert answer is not None
            return [charge, child.value, answer]

        self.main = main

    def charge(self) -> int:
        self.charged += 1
        return 7


async def run_torn(url: str, tear: Tear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a scene to its end."""
    scene = Scene()
    async with Simulation.open(url) as simulation:
        await simulation.use(scene.app)
        job = await scene.main.aenqueue()
        if tear.verb == "resume_held":
            # The next look resumes the message.
            await simulation.advance("29s")
        monkeypatch.setattr(database, "load_script", tear.load)
        for _ in range(3):
            # Workers note what a store refuses; agents are told.
            with suppress(StoreError):
                await simulation.advance("4m")
        await scene.app.asignal(job.id, "go", 9, key="once")
        await simulation.advance("4m")
        assert await job.aresult() == [7, 2, 9]
        (waits,) = [each for each in await simulation.store.examine() if each.name == "waits"]
        assert waits.text == "0 holds"
        places = {each.place for each in await simulation.store.census()}
        assert places == {"message", "ended"}


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("save_step", 1),
        pytest.param("wait", 1, marks=LONG),
        pytest.param("wait", 2, marks=LONG),
        ("wait", 3),
        ("resume_held", 1),
    ],
)
async def test_what_is_torn_is_repaired(
    redis_server: Redis, monkeypatch: pytest.MonkeyPatch, verb: str, call: int
) -> None:
    writes = 0
    while True:
        with redis_server.database() as url, monkeypatch.context() as patch:
            await run_torn(url, Tear(verb, call, writes), patch)
            with redis_server.connect() as outside:
                if not outside.exists("torn"):
                    break
        writes += 1
    assert writes > 2
