"""Whether a password is right: bcrypt, off the event loop, one at a time, and remembered when it was."""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

MAX_PASSWORD_BYTES = 72
"""What bcrypt looks at; a longer password cannot have been hashed."""
MAX_REMEMBERED = 128
MAX_WAITING = 32
PAUSE = 4
"""After a wrong password none is tried for this many times what it took: guessing costs a fifth of a core at most."""


class BusyError(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """Checks names and passwords against bcrypt hashes for one event loop.

    `verify(password, hashed)` is bcrypt's; it runs in `executor`. A pair that was right is known again by a keyed
    digest of name, hash and password, so that a scrape costs a hash once and not every 15 s.
    """

    def __init__(self, users: Mapping[str, bytes], verify: Callable[[bytes, bytes], bool], executor: Executor) -> None:
        self._users = users
        self._verify = verify
        self._executor = executor
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def right(self, name: str, password: bytes) -> bool:
        """Whether `name` has this password; a name that is unknown takes as long. Raises `BusyError`."""
        known = name in self._users
        hashed = self._users[name] if known else next(iter(self._users.values()), b"")
        pair = self._digest(name, hashed, password)
        if known and self._remembers(pair):
            return True
        if not hashed or len(password) > MAX_PASSWORD_BYTES or b"\0" in password:
            return False
        if self._waiting >= MAX_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._turn:
                return self._remembers(pair) or await self._try(pair, known, password, hashed)
        finally:
            self._waiting -= 1

    async def _try(self, pair: bytes, known: bool, password: bytes, hashed: bytes) -> bool:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        right = await loop.run_in_executor(self._executor, self._verify, password, hashed) and known
        if right:
            self._right[pair] = None
            if len(self._right) > MAX_REMEMBERED:
                self._right.popitem(last=False)
        else:
            await asyncio.sleep(PAUSE * (loop.time() - begun))
        return right

    def _remembers(self, pair: bytes) -> bool:
        if pair not in self._right:
            return False
        self._right.move_to_end(pair)
        return True

    def _digest(self, name: str, hashed: bytes, password: bytes) -> bytes:
        text = b"\0".join((name.encode("utf-8", "surrogateescape"), hashed, password))
        return hmac.digest(self._key, text, hashlib.sha256)
