"""The simulation. An event changes the work of a server. The simulation has no event per token: between events, texts advance at a constant speed."""

import heapq
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from .plan import Callers, Fleet, Profile, Turn, draw
from .results import Results
from .ring import Ring

# How much a prompt may slow down texts that decode: a step takes at most this many times as long (`prefill_slowdown` of the engine).
SLOWDOWN = 2.0
# The seconds after which a refused caller tries again.
AGAIN = 1.0
# The route `bounded` passes over a server with this many times the mean load.
BOUND = 1.25
ROUTES = ("hash", "bounded", "random", "two")


class Conversation:
    """One conversation of a caller, who then begins another one."""

    __slots__ = ("caller", "number", "place", "turns", "turn", "tokens", "stored")

    def __init__(self, caller: int, number: int, place: int, turns: list[Turn]) -> None:
        # `place` is the place of the routing key on the ring. `turns` has the caller's given turns, and `turn` is the number of the next turn.
        self.caller, self.number, self.place, self.turns, self.turn = caller, number, place, turns, 0
        # Tokens of the text, and tokens of the state in the store.
        self.tokens = self.stored = 0


class Request:
    __slots__ = ("conversation", "prompt", "cached", "answer", "asked", "work", "first", "server", "life")

    def __init__(self, conversation: Conversation, prompt: int, answer: int, asked: float) -> None:
        self.conversation, self.prompt, self.answer, self.asked = conversation, prompt, answer, asked
        self.cached = 0
        # The remaining seconds of prefill. Infinite until prefill begins.
        self.work = math.inf
        # The time of the first token. Negative before the first token. A request that begins again keeps this time.
        self.first = -1.0
        # The server, and the server's `life` when the request was submitted.
        self.server: Server
        self.life = 0


class Server:
    def __init__(self, number: int, host: list["Server"]) -> None:
        self.number, self.host = number, host
        self.accepts = True
        # Grows when the server ends. A request or an event of an earlier life is void.
        self.life = 0
        # The number of requests whose state is being transferred, the requests that wait for a slot, the prompts in prefill, and the texts that
        # decode, ordered by the step at which they end.
        self.coming = 0
        self.waiting: deque[Request] = deque()
        self.reading: deque[Request] = deque()
        self.decoding: list[tuple[float, int, Request]] = []
        # Steps so far, the time up to which steps are counted, and the number of the planned event. Events with another number are void.
        self.steps = self.time = 0.0
        self.plan = 0
        # Tokens of the states in memory by conversation, the least recently used first, and their bytes.
        self.kept: OrderedDict[int, int] = OrderedDict()
        self.bytes = 0.0
        # Time with prompts, time with texts that decode, and time of all slots that are in use.
        self.reading_seconds = self.decoding_seconds = self.slot_seconds = 0.0

    def running(self) -> int:
        return len(self.reading) + len(self.decoding)

    def load(self) -> int:
        return len(self.reading) + len(self.decoding) + len(self.waiting) + self.coming

    def is_full(self, fleet: Fleet) -> bool:
        return self.running() >= fleet.slots and len(self.waiting) >= fleet.queue


class Simulation:
    """Runs conversations on servers for `seconds` seconds. `given` has the turns of each caller, who leaves after them; otherwise turns are drawn."""

    def __init__(
        self, profile: Profile, callers: Callers, fleet: Fleet, seconds: float, warm: float = 0.0, seed: int = 1, given: list[list[Turn]] | None = None
    ) -> None:
        self.profile, self.callers, self.fleet, self.seconds = profile, callers, fleet, seconds
        self.chance = random.Random(seed)
        self.now, self.n_events = 0.0, 0
        self.events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self.store_free = 0.0
        # Requests that servers have: the sum of their loads.
        self.n_loaded = 0
        self.servers: list[Server] = []
        host: list[Server] = []
        for number in range(fleet.replicas):
            if number % fleet.per_host == 0:
                host = []
            host.append(Server(number, host))
            self.servers.append(host[-1])
        self.n_accepting = fleet.replicas
        self.results = Results(warm)
        self.ring = Ring(fleet.replicas)
        self.n_conversations = 0
        self._begin(given)

    def run(self) -> Results:
        events, pop = self.events, heapq.heappop
        while events and events[0][0] <= self.seconds:
            self.now, _, what, about = pop(events)
            what(about)
        for server in self.servers:
            self._advance(server)
        return self.results.close(self)

    def _begin(self, given: list[list[Turn]] | None) -> None:
        fleet, callers, chance = self.fleet, self.callers, self.chance
        for caller in range(len(given) if given else callers.sessions):
            conversation = self._conversation(caller, given[caller] if given else [], 0)
            if given:
                self._after(given[caller][0].pause, self._ask, conversation)
                continue
            # At the start, a caller is in the middle of a conversation and of a pause.
            n = conversation.turn = chance.randrange(callers.turns)
            if n:
                conversation.tokens = round(callers.first + (n - 1) * callers.message + n * callers.answer)
                conversation.stored = conversation.tokens if fleet.store else 0
            self._after(chance.random() * callers.pause, self._ask, conversation)
        for time, number in fleet.kills:
            self._after(time, self._fail, self.servers[number])
        if fleet.failures:
            for server in self.servers:
                self._after(chance.expovariate(1 / fleet.failures), self._fail_again, server)
        if fleet.restart:
            self._after(fleet.restart, self._restart, 0)

    def _after(self, seconds: float, what: Callable[[Any], None], about: Any) -> None:
        self.n_events += 1
        heapq.heappush(self.events, (self.now + seconds, self.n_events, what, about))

    # Callers and routes

    def _conversation(self, caller: int, turns: list[Turn], turn: int) -> Conversation:
        """Returns a caller's next conversation. Hot callers (`hot_share`) have `hot_keys` routing keys in common."""
        callers = self.callers
        is_hot = caller < callers.hot_share * callers.sessions
        key = f"hot-{caller % callers.hot_keys}" if is_hot else f"{caller}/{turn // callers.turns}"
        self.n_conversations += 1
        conversation = Conversation(caller, self.n_conversations, self.ring.place(key), turns)
        conversation.turn = turn
        return conversation

    def _route(self, place: int) -> Server | None:
        """Returns the server for a routing key, or None if no server accepts requests."""
        route, servers = self.fleet.route, self.servers
        if self.n_accepting == 0:
            return None
        if route in ("hash", "bounded"):
            most = BOUND * (self.n_loaded + 1) / self.n_accepting if route == "bounded" else math.inf
            return next(server for server in map(servers.__getitem__, self.ring.servers(place)) if server.accepts and server.load() <= most)
        first, second = self._any(), self._any()
        return second if route == "two" and second.load() < first.load() else first

    def _any(self) -> Server:
        while True:
            server = self.chance.choice(self.servers)
            if server.accepts:
                return server

    def _ask(self, conversation: Conversation) -> None:
        turns, turn = conversation.turns, conversation.turn
        next_turn = turns[turn] if turns else draw(self.callers, turn % self.callers.turns == 0, self.chance)
        self._submit(Request(conversation, conversation.tokens + next_turn.message, next_turn.answer, self.now))

    def _submit(self, request: Request) -> None:
        server = self._route(request.conversation.place)
        if server is None:
            self._refuse(request)
            return
        request.server, request.life, request.work = server, server.life, math.inf
        conversation = request.conversation
        kept = server.kept.get(conversation.number, 0)
        wait = self.profile.overhead
        request.cached = kept
        if server.is_full(self.fleet):
            # A server refuses a request before it reads a state for it.
            self._refuse(request)
            return
        if self.fleet.store:
            # A server asks for the version of the state, and reads the state if it does not have this version in memory.
            wait += self.fleet.latency
            self.results.stored(self.now, "head", 0)
            if conversation.stored > kept:
                request.cached = conversation.stored
                self._keep(server, conversation.number, conversation.stored)
                wait += self._transfer("get", conversation.stored)
        server.coming += 1
        self.n_loaded += 1
        self._after(wait, self._arrive, request)

    def _arrive(self, request: Request) -> None:
        server = request.server
        if server.life != request.life:
            self._submit(request)
            return
        server.coming -= 1
        if not server.accepts:
            self.n_loaded -= 1
            self._submit(request)
        elif server.running() < self.fleet.slots:
            self._change(server, self._start, request)
        elif server.is_full(self.fleet):
            self.n_loaded -= 1
            self._refuse(request)
        else:
            server.waiting.append(request)

    def _refuse(self, request: Request) -> None:
        self.results.refused(self.now)
        self._after(AGAIN, self._submit, request)

    def _transfer(self, operation: str, tokens: int) -> float:
        """Returns the time that a state takes from or to the store. All servers share the bandwidth of the store."""
        size = self.profile.size(tokens)
        self.results.stored(self.now, operation, size)
        self.store_free = max(self.now, self.store_free) + size / self.fleet.store_bandwidth
        return self.fleet.latency + max(self.store_free - self.now, size / self.fleet.bandwidth)

    # Steps of a server

    def _change(self, server: Server, what: Callable[[Server, Any], None], about: Any) -> None:
        """Changes what a server does. If the server starts or stops computing, the speed of all servers of its host changes."""
        was_busy = server.running() > 0
        together = server.host if len(server.host) > 1 else (server,)
        for each in together:
            self._advance(each)
        what(server, about)
        self._plan(server)
        if (server.running() > 0) != was_busy:
            for each in together:
                self._plan(each)

    def _slower(self, server: Server) -> float:
        if len(server.host) == 1:
            return 1.0
        return self.profile.slower(sum(1 for each in server.host if each.reading or each.decoding))

    def _advance(self, server: Server) -> None:
        """Counts the work since the last event."""
        passed, n_running = self.now - server.time, server.running()
        server.time = self.now
        if passed <= 0 or n_running == 0:
            return
        is_counted = self.now > self.results.warm
        server.slot_seconds += passed * n_running * is_counted
        passed /= self._slower(server)
        if not server.reading:
            server.steps += passed / self.profile.step_time(len(server.decoding))
            server.decoding_seconds += passed * is_counted
        elif not server.decoding:
            server.reading[0].work -= passed
            server.reading_seconds += passed * is_counted
        else:
            share = 1 - 1 / SLOWDOWN
            server.reading[0].work -= passed * share
            server.steps += passed / SLOWDOWN / self.profile.step_time(len(server.decoding))
            server.reading_seconds += passed * share * is_counted
            server.decoding_seconds += passed * (1 - share) * is_counted

    def _plan(self, server: Server) -> None:
        """Plans the next event of a server: a prompt that is read, or a text that ends."""
        if server.reading and server.reading[0].work == math.inf:
            request = server.reading[0]
            request.work = self.profile.read_time(request.prompt - request.cached, len(server.decoding))
        server.plan += 1
        wait = None
        if server.decoding:
            wait = max(0.0, server.decoding[0][0] - server.steps) * self.profile.step_time(len(server.decoding)) * (SLOWDOWN if server.reading else 1.0)
        if server.reading:
            read = max(0.0, server.reading[0].work) / (1 - 1 / SLOWDOWN if server.decoding else 1.0)
            wait = read if wait is None else min(wait, read)
        if wait is not None:
            self._after(wait * self._slower(server), self._due, (server, server.plan))

    def _due(self, planned: tuple[Server, int]) -> None:
        server, plan = planned
        if server.plan == plan:
            self._change(server, self._complete, None)

    def _complete(self, server: Server, _) -> None:
        if server.reading and server.reading[0].work <= 1e-9:
            # Prefilling the last token of a prompt also computes the first token of the answer.
            request = server.reading.popleft()
            if request.first < 0:
                request.first = self.now
                self.results.first_token(self.now, request)
            self.n_events += 1
            # With a store, one more step reads the last token, because the stored state includes this token.
            n_steps = request.answer - (not self.fleet.store)
            heapq.heappush(server.decoding, (server.steps + n_steps, self.n_events, request))
        while server.decoding and server.decoding[0][0] <= server.steps + 1e-6:
            self._end(server, heapq.heappop(server.decoding)[2])

    def _start(self, server: Server, request: Request) -> None:
        server.reading.append(request)

    def _end(self, server: Server, request: Request) -> None:
        """Ends a text: keeps its state, and gives its slot to the next request."""
        conversation = request.conversation
        tokens = request.prompt + request.answer
        self.n_loaded -= 1
        self._keep(server, conversation.number, tokens)
        self._after(self._transfer("put", tokens) if self.fleet.store else 0.0, self._answered, request)
        if server.waiting:
            self._start(server, server.waiting.popleft())

    def _keep(self, server: Server, number: int, tokens: int) -> None:
        size, kept = self.profile.size, server.kept
        if number in kept:
            server.bytes -= size(kept.pop(number))
        kept[number] = tokens
        server.bytes += size(tokens)
        while server.bytes > self.fleet.memory and kept:
            server.bytes -= size(kept.popitem(last=False)[1])

    def _answered(self, request: Request) -> None:
        conversation = request.conversation
        self.results.answered(self.now, request)
        conversation.tokens = request.prompt + request.answer
        conversation.stored = conversation.tokens if self.fleet.store else 0
        conversation.turn += 1
        turns = conversation.turns
        if turns and conversation.turn == len(turns):
            return
        pause = turns[conversation.turn].pause if turns else self.chance.expovariate(1 / self.callers.pause)
        if conversation.turn % self.callers.turns == 0:
            conversation = self._conversation(conversation.caller, turns, conversation.turn)
        self._after(pause, self._ask, conversation)

    # Servers that end

    def _fail_again(self, server: Server) -> None:
        self._fail(server)
        self._after(self.chance.expovariate(1 / self.fleet.failures), self._fail_again, server)

    def _fail(self, server: Server) -> None:
        """Kills a server. Its requests begin again on other servers."""
        lost = [*server.waiting, *server.reading, *(request for _, _, request in server.decoding)]
        self.results.lost(self.now, lost)
        self._close(server)
        self._change(server, self._empty, None)
        for request in lost:
            self._submit(request)
        self._after(self.fleet.away + self.profile.load, self._open, (server, server.life))

    def _close(self, server: Server) -> None:
        if server.accepts:
            server.accepts = False
            self.n_accepting -= 1

    def _open(self, loaded: tuple[Server, int]) -> None:
        server, life = loaded
        if server.life == life and not server.accepts:
            server.accepts = True
            self.n_accepting += 1

    def _empty(self, server: Server, _) -> None:
        self.n_loaded -= server.load()
        for queue in (server.waiting, server.reading, server.decoding):
            queue.clear()
        server.kept.clear()
        server.bytes, server.coming = 0.0, 0
        server.life += 1

    def _restart(self, first: int) -> None:
        """Restarts some servers: they complete their texts for `grace` seconds, then load. The next servers follow."""
        servers = self.servers[first : first + max(1, round(self.fleet.restart_share * len(self.servers)))]
        for server in servers:
            # A server that is away already comes back together with these servers.
            server.life += not server.accepts
            self._close(server)
        self._after(self.fleet.grace, self._stop, (servers, first + len(servers)))

    def _stop(self, stopped: tuple[list[Server], int]) -> None:
        servers, following = stopped
        for server in servers:
            # A text that is cut off reaches its caller, and its state reaches the store. The simulation counts it as a whole text.
            cut = [request for _, _, request in server.decoding]
            waiting = [*server.waiting, *server.reading]
            self._close(server)
            self._change(server, self._empty, None)
            for request in cut:
                self._after(self._transfer("put", request.prompt + request.answer) if self.fleet.store else 0.0, self._answered, request)
            for request in waiting:
                self._submit(request)
            self._after(self.profile.load, self._open, (server, server.life))
        if following < len(self.servers):
            self._after(self.profile.load, self._restart, following)

