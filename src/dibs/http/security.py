"""The guard before API and dashboard: who is asking, what may he do, and what is never let through.

Closed by default. Whoever has no token is let in only from this machine, and only where that was asked for; what
changes something is let through only for operators, and never because another website made a browser ask.
"""

import inspect
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.http.problems import Problem
from dibs.http.service.data import Identity, Role
from dibs.http.tokens import SESSION, Tokens

Authorize = Callable[[Request], Identity | Awaitable[Identity | None] | None]
"""The host application's own way to say who is asking; None: nobody."""

IDENTITY = "dibs.identity"
COOKIE = "dibs_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC = ("/login", "/static/", "/healthz", "/readyz")
"""What anybody may ask for: nothing of the jobs is there."""
PROGRAMS = ("/api", "/metrics")
"""Where a problem document is the answer, and not a page to log in."""
LARGEST_BODY = 2 * 1024 * 1024
LARGEST_FORM = 64 * 1024
LOCAL = Identity(name="local", role=Role.OPERATOR)

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Buckets:
    """So many requests a second for each client, and some more at once. Forgets those it has not seen for longest."""

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait(self, who: str, *, take: bool = True) -> float:
        """Seconds until there is room; 0 if there is, and then it is taken, unless told otherwise."""
        now = time.monotonic()
        full_at = max(self._full_at.get(who, 0.0), now) + 1 / self._rate
        late = full_at - now - self._burst / self._rate
        if late > 0 or not take:
            return max(late, 0.0)
        self._full_at[who] = full_at
        self._full_at.move_to_end(who)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return 0.0


class Guard:
    """Wraps an ASGI application; what gets through finds who is asking in the scope, under ``dibs.identity``."""

    def __init__(
        self,
        inner: ASGIApp,
        *,
        tokens: Tokens | None = None,
        authorize: Authorize | None = None,
        local: bool = False,
        read_only: bool = False,
        rate: float = 100.0,
    ) -> None:
        """``local`` lets in without a token whoever asks from this machine, as an operator."""
        self._inner = inner
        self._tokens = tokens or Tokens()
        self._authorize = authorize
        self._local = local
        self._read_only = read_only
        self._requests = Buckets(rate, rate * 2)
        self._failures = Buckets(10 / 60, 10)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no websockets here
        sending = _Sending(send)
        try:
            await self._http(scope, receive, sending)
        except Problem as problem:
            if sending.started:
                raise
            await problem.response()(scope, receive, sending)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = inner_path(scope), scope["method"]
        headers = Headers(scope=scope)
        wait = self._requests.wait(_client(scope))
        if wait > 0:
            raise _too_often(wait)
        if self._local and not self._tokens and self._authorize is None:
            _check_local(scope, headers)
        receive = _capped(receive, headers)
        if path == "/login" and method == "POST":
            await self._login(scope, receive, send)
            return
        if path == "/logout" and method == "POST":
            _check_origin(headers, scope)
            await _logged_out(scope)(scope, receive, send)
            return
        who, by_token = await self._identify(scope, receive, headers)
        if who is None and not path.startswith(PUBLIC):
            await self._turned_away(scope, path, method)(scope, receive, send)
            return
        if method not in SAFE:
            self._may_change(who, by_token, headers, scope)
        scope[IDENTITY] = who
        await self._inner(scope, receive, send)

    # --- who is asking --------------------------------------------------------------------------------------

    async def _identify(self, scope: Scope, receive: Receive, headers: Headers) -> tuple[Identity | None, bool]:
        """Who it is, and whether he showed a token, which no other website can make a browser do."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if self._tokens and scheme.lower() == "bearer":
            return self._shown(self._check(scope, given.strip())), True
        if self._tokens and (session := _cookie(headers)) is not None:
            who = self._tokens.resume(session)
            if who is not None:
                return self._shown(who), False
        if self._authorize is not None:
            answer = self._authorize(Request(scope, receive))
            who = await answer if inspect.isawaitable(answer) else answer
            return self._shown(who), False
        if self._local and not self._tokens:
            return self._shown(LOCAL), False
        return None, False

    def _check(self, scope: Scope, secret: str) -> Identity:
        who = self._tokens.check(secret)
        if who is None and self._tokens.some_chosen:  # a secret that somebody chose can be guessed
            client = _client(scope)
            wait = self._failures.wait(client, take=False)
            if wait > 0:
                raise _too_often(wait)
            who = self._tokens.check_chosen(secret)
            if who is None:
                self._failures.wait(client)
        if who is None:
            raise Problem(401, "The token is not known", "see that it is complete", {"WWW-Authenticate": "Bearer"})
        return who

    def _shown(self, who: Identity | None) -> Identity | None:
        if who is None or not self._read_only:
            return who
        return Identity(name=who.name, role=Role.READER)

    @staticmethod
    def _may_change(who: Identity | None, by_token: bool, headers: Headers, scope: Scope) -> None:
        if not by_token:
            _check_origin(headers, scope)
        if who is None or not who.may_change:
            raise Problem(403, "Only operators may change something", "ask with an operator's token")

    def _turned_away(self, scope: Scope, path: str, method: str) -> Response:
        if path.startswith(PROGRAMS) or method not in SAFE or not self._tokens:
            detail = "send Authorization: Bearer TOKEN" if self._tokens else "you have to be logged in"
            return Problem(401, "Who is asking?", detail, {"WWW-Authenticate": "Bearer"}).response()
        query = scope.get("query_string", b"").decode("latin-1")
        target = path + (f"?{query}" if query else "")
        return RedirectResponse(f"{scope.get('root_path', '')}/login?next={quote(target, safe='/')}", 303)

    # --- logging in with a token, for browsers --------------------------------------------------------------

    async def _login(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        _check_origin(headers, scope)
        form = parse_qs((await _body(receive, LARGEST_FORM)).decode("utf-8", "replace"), max_num_fields=10)
        target = form.get("next", ["/"])[0]
        root = scope.get("root_path", "")
        try:
            who = self._check(scope, form.get("token", [""])[0].strip())
        except Problem as problem:
            if problem.status != 401:
                raise
            wrong = RedirectResponse(f"{root}/login?wrong=1&next={quote(_inside(target), safe='/')}", 303)
            await wrong(scope, receive, send)
            return
        answer = RedirectResponse(f"{root}{_inside(target)}", 303)
        answer.set_cookie(
            COOKIE,
            self._tokens.session(who),
            max_age=SESSION,
            path=root or "/",
            secure=scope.get("scheme") == "https",
            httponly=True,
            samesite="lax",  # strict would ask everybody who follows a link from a chat to log in again
        )
        await answer(scope, receive, send)


def identity(scope: MutableMapping[str, object]) -> Identity:
    """Who is asking; behind a guard there is always somebody."""
    who = scope.get(IDENTITY)
    if not isinstance(who, Identity):
        raise Problem(401, "Who is asking?")
    return who


def inner_path(scope: Scope) -> str:
    """The path below where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- checks -----------------------------------------------------------------------------------------------------


def _check_local(scope: Scope, headers: Headers) -> None:
    """Somebody on this machine, by its own name, and not through a proxy.

    Another website may have its name resolve to 127.0.0.1 and read answers as its own; the name in Host tells.
    """
    host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    proxied = any(name in headers for name in ("forwarded", "x-forwarded-for", "x-real-ip", "via"))
    if not is_loopback(_client(scope)) or not is_loopback(host) or proxied:
        raise Problem(403, "Only from this machine", "without tokens nobody else is let in: see dibs serve --help")


def _check_origin(headers: Headers, scope: Scope) -> None:
    """That no other website made a browser send this. Programs, which are not browsers, say nothing of an origin."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise Problem(403, "Another site sent this", "what changes something is sent from its own pages only")
    origin = headers.get("origin")
    if origin is not None:
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Problem(403, "Another site sent this", "the origin is not this host: a proxy has to pass Host on")
        return
    plain = headers.get("content-type", "").partition(";")[0].strip().lower()
    if plain != "application/json" and site is None and headers.get("content-length", "0") != "0":
        raise Problem(403, "Where does this come from?", "a form has to come with an Origin; send application/json")
    if "cookie" in headers and site is None:
        raise Problem(403, "Where does this come from?", "a browser has to say so, with Origin or Sec-Fetch-Site")


def _too_often(wait: float) -> Problem:
    return Problem(429, "Too many requests", "slow down", {"Retry-After": str(max(1, int(wait) + 1))})


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _cookie(headers: Headers) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _inside(target: str) -> str:
    """Where to go after logging in: a path of ours, never another site."""
    if not target.startswith("/") or target.startswith(("//", "/\\")) or not target.isprintable():
        return "/"
    return target


def _logged_out(scope: Scope) -> Response:
    root = scope.get("root_path", "")
    answer = RedirectResponse(f"{root}/login", 303)
    answer.delete_cookie(COOKIE, path=root or "/", httponly=True, samesite="lax")
    return answer


# --- what goes in and out ---------------------------------------------------------------------------------------


def _capped(receive: Receive, headers: Headers) -> Receive:
    """No body is read that is longer than anything we want."""
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise _too_large()
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise _too_large()
        return message

    return counting


def _too_large() -> Problem:
    return Problem(413, "The body is too large", f"send at most {LARGEST_BODY:,} bytes")


async def _body(receive: Receive, most: int) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > most:
            raise _too_large()
        if message["type"] != "http.request" or not message.get("more_body"):
            return body


class _Sending:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            there = {name.lower() for name, _ in message.get("headers", ())}
            extra = {"cache-control": "no-store", **HEADERS}
            more = [(name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in there]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)
