"""How passwords are checked: right, once, one at a time, and never too many."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest

from exporter.guard.passwords import MAX_REMEMBERED, MAX_WAITING, BusyError, Passwords
from tests.guard.files import hashed


class Verify:
    """bcrypt's check, which counts, and notes whether two ran at once and whether the event loop's thread ran it."""

    def __init__(self) -> None:
        self.calls = 0
        self.threads: set[str] = set()
        self._running = threading.Lock()
        self.overlapped = False

    def __call__(self, password: bytes, hash_: bytes) -> bool:
        if not self._running.acquire(blocking=False):
            self.overlapped = True
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        try:
            return bcrypt.checkpw(password, hash_)
        finally:
            self._running.release()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4, thread_name_prefix="bcrypt") as pool:
        yield pool


USERS = {"alice": hashed("secret").encode(), "bob": hashed("other").encode()}


@pytest.mark.parametrize(
    ("name", "password", "right"),
    [
        ("alice", b"secret", True),
        ("bob", b"other", True),
        ("alice", b"other", False),
        ("bob", b"secret", False),
        ("carol", b"secret", False),
        ("", b"", False),
        ("alice", b"", False),
        ("alice", b"secret\0", False),
        ("alice", b"s" * 73, False),
    ],
)
def test_only_the_right_pair_is_right(executor: ThreadPoolExecutor, name: str, password: bytes, right: bool) -> None:
    """Name and password must belong together; what bcrypt cannot take is wrong, not an error."""
    passwords = Passwords(USERS, bcrypt.checkpw, executor)
    assert asyncio.run(passwords.right(name, password)) is right


def test_a_right_pair_costs_one_hash(executor: ThreadPoolExecutor) -> None:
    """Ten scrapes at once and ten after them compute one hash, in another thread than the loop's."""
    verify = Verify()

    async def scrape() -> list[bool]:
        passwords = Passwords(USERS, verify, executor)
        first = await asyncio.gather(*(passwords.right("alice", b"secret") for _ in range(10)))
        return [*first, *[await passwords.right("alice", b"secret") for _ in range(10)]]

    assert all(asyncio.run(scrape()))
    assert verify.calls == 1
    assert all(name.startswith("bcrypt") for name in verify.threads)


def test_a_wrong_pair_costs_a_hash_each_time_known_or_not(executor: ThreadPoolExecutor) -> None:
    """Whether a name is known cannot be told by what a refusal costs, and no refusal is remembered."""
    verify = Verify()

    async def guess() -> None:
        passwords = Passwords(USERS, verify, executor)
        await passwords.right("alice", b"secret")
        for name in ("alice", "alice", "carol", "carol"):
            assert not await passwords.right(name, b"wrong")

    asyncio.run(guess())
    assert verify.calls == 5


def test_passwords_are_tried_one_at_a_time_and_the_rest_is_turned_away(executor: ThreadPoolExecutor) -> None:
    """However many guess at once, one hash is computed at a time, and beyond a bound nobody waits."""
    verify = Verify()

    async def guess() -> list[bool | BaseException]:
        passwords = Passwords(USERS, verify, executor)
        tries = (passwords.right("alice", b"%d" % number) for number in range(MAX_WAITING + 10))
        return await asyncio.gather(*tries, return_exceptions=True)

    answers = asyncio.run(guess())
    assert sum(isinstance(answer, BusyError) for answer in answers) == 10
    assert answers.count(False) == verify.calls == MAX_WAITING
    assert not verify.overlapped


def test_a_remembered_pair_passes_while_others_guess(executor: ThreadPoolExecutor) -> None:
    """Who has been let in once is let in again at once, however many guesses wait."""

    async def guess() -> None:
        passwords = Passwords(USERS, bcrypt.checkpw, executor)
        assert await passwords.right("alice", b"secret")
        guesses = [asyncio.create_task(passwords.right("alice", b"%d" % number)) for number in range(MAX_WAITING)]
        await asyncio.sleep(0)
        assert await passwords.right("alice", b"secret")
        assert not all(task.done() for task in guesses)
        for task in guesses:
            task.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)

    asyncio.run(guess())


def test_what_is_remembered_is_bounded(executor: ThreadPoolExecutor) -> None:
    """With more users than places the oldest pair is forgotten and hashed again."""
    calls = 0

    def verify(password: bytes, _: bytes) -> bool:
        nonlocal calls
        calls += 1
        return True

    async def all_of_them() -> None:
        names = [f"user{number}" for number in range(MAX_REMEMBERED + 1)]
        passwords = Passwords(dict.fromkeys(names, b"hash"), verify, executor)
        for name in names:
            assert await passwords.right(name, b"x")
        assert await passwords.right(names[-1], b"x")
        assert calls == len(names)
        assert await passwords.right(names[0], b"x")

    asyncio.run(all_of_them())
    assert calls == MAX_REMEMBERED + 2
