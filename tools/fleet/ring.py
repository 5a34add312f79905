"""Consistent hashing: assigns each routing key to a server. If a server is added or removed, only the keys of that server move."""

import bisect
import hashlib
from collections.abc import Iterator

# Points of a server on the ring, as in nginx.
POINTS = 160


class Ring:
    def __init__(self, n_servers: int) -> None:
        points = sorted((_hash(f"server-{number}/{point}"), number) for number in range(n_servers) for point in range(POINTS))
        self._places = [at for at, _ in points]
        self._owners = [number for _, number in points]

    def place(self, key: str) -> int:
        """Returns the place of a routing key."""
        return bisect.bisect(self._places, _hash(key)) % len(self._places)

    def servers(self, place: int) -> Iterator[int]:
        """Returns the server of a place, then the servers that take over if that server is away. A server can appear several times."""
        for k in range(place, place + len(self._owners)):
            yield self._owners[k % len(self._owners)]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
