"""Tokens: who may look, who may change. Kept as hashes, compared in constant time."""

import base64
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dibs.errors import ConfigurationError
from dibs.http.service.data import Identity, Role

_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_COST, _BLOCK, _LANES = 2**14, 8, 1
_MADE = "a line is NAME ROLE HASH, as dibs token prints it"
_REMEMBERED = 100
SESSION = 12 * 3600
"""Seconds for which somebody stays logged in."""


class Token(msgspec.Struct, frozen=True):
    """A name, what it may do, and the hash of its secret."""

    name: str
    role: Role
    hash: str

    @classmethod
    def read(cls, line: str) -> "Token":
        """``NAME ROLE HASH``; a ConfigurationError that does not repeat the line, which may hold a secret."""
        words = line.split()
        if len(words) != 3:
            raise ConfigurationError(f"a token cannot be read, it has {len(words)} words: {_MADE}")
        name, role, hash = words
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"a token's name has letters, digits and ._@+- only, at most 64: {_MADE}")
        if role not in tuple(Role):
            raise ConfigurationError(f"token {name} has no role: it is one of {', '.join(Role)}")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", hash) and not re.fullmatch(r"scrypt:[\w+/=-]+:[\w+/=-]+", hash):
            raise ConfigurationError(f"token {name} is not hashed: make one with dibs token {name} --role {role}")
        return cls(name, Role(role), hash)

    def line(self) -> str:
        return f"{self.name} {self.role} {self.hash}"


def new_token(name: str, role: Role) -> tuple[str, Token]:
    """A secret of 256 random bits, which nobody can guess, and what is kept of it."""
    secret = f"dibs_{secrets.token_urlsafe(32)}"
    return secret, Token.read(f"{name} {role} {_quick(secret)}")


def chosen_token(name: str, role: Role, password: str) -> Token:
    """For a secret that a person chose: hashed slowly, so that a stolen file does not give it away."""
    salt = os.urandom(16)
    hashed = base64.b64encode(_slow(password, salt)).decode()
    return Token.read(f"{name} {role} scrypt:{base64.b64encode(salt).decode()}:{hashed}")


def _quick(secret: str) -> str:
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"


def _slow(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=_COST, r=_BLOCK, p=_LANES, dklen=32)


class Tokens:
    """All that are known, and the sessions of those who showed one."""

    def __init__(self, tokens: Iterable[Token] = (), secret: str | None = None) -> None:
        """``secret`` signs sessions; without one they end with the process."""
        self._by_name: dict[str, Token] = {}
        for token in tokens:
            if token.name in self._by_name:
                raise ConfigurationError(f"there are two tokens {token.name}: give each a name of its own")
            self._by_name[token.name] = token
        self._secret = secrets.token_bytes(32) if secret is None else hashlib.sha256(secret.encode()).digest()
        self._known: dict[bytes, Identity] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def some_chosen(self) -> bool:
        """Whether there are secrets that somebody chose, which can be guessed."""
        return any(token.hash.startswith("scrypt") for token in self._by_name.values())

    def check(self, secret: str) -> Identity | None:
        """Whose it is, of those that nobody can guess. Takes as long for a wrong one as for a right one."""
        if not _sensible(secret):
            return None
        found = self._known.get(hashlib.sha256(secret.encode()).digest())
        hashed = _quick(secret)
        for token in self._by_name.values():
            if hmac.compare_digest(hashed, token.hash):
                found = Identity(name=token.name, role=token.role)
        return found

    def check_chosen(self, secret: str) -> Identity | None:
        """Whose it is, of those that somebody chose. Slow on purpose, but for one that was right before."""
        if not _sensible(secret):
            return None
        found: Identity | None = None
        for token in self._by_name.values():
            if token.hash.startswith("scrypt") and _fits(secret, token.hash):
                found = Identity(name=token.name, role=token.role)
        if found is not None and len(self._known) < _REMEMBERED:
            self._known[hashlib.sha256(secret.encode()).digest()] = found
        return found

    # --- sessions: a name and a time, signed ----------------------------------------------------------------

    def session(self, who: Identity, now: float | None = None) -> str:
        """What a browser shows from now on instead of the token."""
        until = int((time.time() if now is None else now) + SESSION)
        said = f"{who.name}~{until}"
        return f"{said}~{self._sign(said)}"

    def resume(self, session: str, now: float | None = None) -> Identity | None:
        """Whose session it is, if it has not ended and the token is still there."""
        said, _, signature = session.rpartition("~")
        if not hmac.compare_digest(self._sign(said).encode(), signature.encode()):
            return None
        name, _, until = said.rpartition("~")
        token = self._by_name.get(name)
        if token is None or not until.isdecimal() or int(until) <= (time.time() if now is None else now):
            return None
        return Identity(name=token.name, role=token.role)

    def _sign(self, said: str) -> str:
        token = self._by_name.get(said.rpartition("~")[0])
        about = f"{said}~{'' if token is None else token.hash}"  # another token of the same name is another session
        return hmac.new(self._secret, about.encode(), hashlib.sha256).hexdigest()


def _sensible(secret: str) -> bool:
    return 1 <= len(secret) <= 1_000 and secret.isprintable()


def _fits(secret: str, hash: str) -> bool:
    _, salt, wanted = hash.split(":")
    return hmac.compare_digest(_slow(secret, base64.b64decode(salt)), base64.b64decode(wanted))


def read_tokens(path: str | None, inline: str | None) -> list[Token]:
    """Tokens of a file and of a variable, a line each; ``#`` begins a comment."""
    lines: Sequence[str] = (inline or "").replace(";", "\n").splitlines()
    if path is not None:
        lines = [*lines, *_lines(Path(path))]
    return [Token.read(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_mode & 0o022:
            raise ConfigurationError(f"anybody of its group or all can write {path}: run chmod go-w {path}")
        return path.read_text("utf-8").splitlines()
    except OSError as problem:
        raise ConfigurationError(f"the tokens cannot be read from {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the tokens cannot be read from {path}: it is no text") from None
