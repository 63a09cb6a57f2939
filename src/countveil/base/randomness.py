"""Random bits: from the operating system for releases, from a seed for tests and simulations."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from countveil.errors import InputError

Words16: TypeAlias = NDArray[np.uint16]
Words64: TypeAlias = NDArray[np.uint64]


class BitSource(Protocol):
    """Uniform bits, drawn lazily: 16 for every draw, 64 more for the few that need them.

    Addressing bits by draw, not by position in a stream, makes a seeded result independent
    of how units are batched.
    """

    @property
    def reproducible(self) -> bool:
        """Whether the same bits can be drawn again."""
        ...

    @property
    def description(self) -> str:
        """How the manifest describes the source."""
        ...

    def for_unit(self, level: str, geocode: str, query: str) -> BitSource:
        """Return the bits of one unit and query."""
        ...

    def for_units(self, level: str, geocodes: Sequence[str], query: str) -> BitSource:
        """Return the bits of several units; a batch of draws is split evenly among them."""
        ...

    def begin(self, draws: int) -> Words16:
        """Start a batch; return the first 16 bits of each draw."""
        ...

    def deepen(self, which: NDArray[np.int64], depth: int) -> Words64:
        """Return 64 further bits for draws `which` of the batch; `depth` counts from 0."""
        ...


_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


class Secure:
    """Bits for releases: AES-256 in counter mode, keyed from the operating system.

    A forked or unpickled copy has a key of its own, so no two processes draw the same bits.

    Examples
    --------
    >>> from countveil import DiscreteGaussian, Secure
    >>> noise = DiscreteGaussian("10").sample(3, rng=Secure())

    """

    reproducible = False
    description = "secure: AES-256-CTR keyed from the operating system"

    def __init__(self) -> None:
        self._rekey()

    def __repr__(self) -> str:
        return "Secure()"

    def __reduce__(self) -> tuple[type[Secure], tuple[()]]:
        return (Secure, ())  # a pickled copy must never repeat our bits

    def _rekey(self) -> None:
        self._forks = _forks
        self._cipher = Cipher(AES(os.urandom(32)), CTR(os.urandom(16))).encryptor()

    def _bytes(self, size: int) -> NDArray[np.uint8]:
        if self._forks != _forks:
            self._rekey()
        out = np.empty(size, np.uint8)
        view = out.data
        for start in range(0, size, _CHUNK):
            stop = min(start + _CHUNK, size)
            self._cipher.update_into(memoryview(_ZEROS)[: stop - start], view[start:stop])
        return out

    def for_unit(self, level: str, geocode: str, query: str) -> Secure:
        """Return itself: fresh bits serve every unit."""
        return self

    def for_units(self, level: str, geocodes: Sequence[str], query: str) -> Secure:
        """Return itself: fresh bits serve every unit."""
        return self

    def begin(self, draws: int) -> Words16:
        """Return 16 fresh bits for each draw."""
        return self._bytes(2 * draws).view(np.uint16)

    def deepen(self, which: NDArray[np.int64], depth: int) -> Words64:
        """Return 64 fresh bits for each draw named."""
        return self._bytes(8 * len(which)).view(np.uint64)


_ADDRESS = np.dtype([("unit", "<u8"), ("depth", "<u4"), ("index", "<u4")])


class Seeded:
    """Reproducible bits for tests and simulations; a release made with them cannot be published.

    Parameters
    ----------
    seed
        Any whole number.

    Examples
    --------
    >>> from countveil import DiscreteGaussian, Seeded
    >>> noise = DiscreteGaussian("10")
    >>> noise.sample(3, rng=Seeded(7)).tolist() == noise.sample(3, rng=Seeded(7)).tolist()
    True

    """

    reproducible = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InputError(f"seed: {seed!r} is not a whole number; write Seeded(7)")
        self.seed = seed
        self.description = f"seeded: {seed} (a simulation, not publishable)"
        self._stream = ("", "")
        self._units = _unit_numbers(("",))
        self._batch = 0

    def __repr__(self) -> str:
        return f"Seeded({self.seed})"

    def for_unit(self, level: str, geocode: str, query: str) -> Seeded:
        """Return the stream of one unit and query."""
        return self.for_units(level, (geocode,), query)

    def for_units(self, level: str, geocodes: Sequence[str], query: str) -> Seeded:
        """Return the streams of several units: a batch of draws is split evenly among them."""
        derived = Seeded(self.seed)
        derived._stream = (level, query)
        derived._units = _unit_numbers(geocodes)
        return derived

    def begin(self, draws: int) -> Words16:
        """Return the first 16 bits of each draw of the next batch."""
        if draws % len(self._units):
            raise InputError(f"{draws} draws cannot be split evenly among {len(self._units)} units")
        self._batch += 1
        self._each = draws // len(self._units)
        name = "\0".join((str(self.seed), *self._stream, str(self._batch))).encode()
        self._key = hashlib.sha256(b"countveil seeded stream\0" + name).digest()
        blocks = -(-self._each // 8)  # 8 words of 16 bits in a cipher block
        address = np.zeros((len(self._units), blocks), _ADDRESS)
        address["unit"] = self._units[:, None]
        address["index"] = np.arange(blocks)
        words = self._encrypt(address).view(np.uint16).reshape(len(self._units), -1)
        return np.ascontiguousarray(words[:, : self._each]).reshape(-1)

    def deepen(self, which: NDArray[np.int64], depth: int) -> Words64:
        """Return the further bits that belong to these draws at this depth."""
        address = np.zeros(len(which), _ADDRESS)
        address["unit"] = self._units[which // max(self._each, 1)]
        address["depth"] = depth + 1
        address["index"] = which % max(self._each, 1)
        return np.ascontiguousarray(self._encrypt(address).view(np.uint64).reshape(-1, 2)[:, 0])

    def _encrypt(self, address: NDArray[np.void]) -> NDArray[np.uint8]:
        # Every address differs, so encrypting each block alone is counter mode with random access.
        cipher: CipherContext = Cipher(AES(self._key), ECB()).encryptor()  # noqa: S305
        return np.frombuffer(cipher.update(address.tobytes()), np.uint8)


def _unit_numbers(geocodes: Sequence[str]) -> Words64:
    digests = b"".join(hashlib.blake2b(code.encode(), digest_size=8).digest() for code in geocodes)
    return np.frombuffer(digests, np.uint64)
