"""An https address in, the text of its file out: read under limits, from public addresses only, and never run."""

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult
from urllib.parse import quote
from urllib.parse import urljoin
from urllib.parse import urlsplit
from urllib.parse import urlunsplit

from liger_dev import __version__
from liger_dev.errors import BadInput

LARGEST = 1_000_000
SECONDS = 20.0
REDIRECTS = 5

_BY_HAND = "save the file yourself and name it: --from FILE.py"
_MOVED = (301, 302, 303, 307, 308)
_TEXT = re.compile(r"text/(plain|x-python|x-script\.python)|application/(x-python|x-python-code|octet-stream)")
_ENTRY = re.compile(r":(?P<entry>[A-Za-z_]\w*)\Z")
_PAGES = (
    # github.com/OWNER/REPO/blob/REF/PATH
    (r"(?:www\.)?github\.com", r"/([^/]+/[^/]+)/(?:blob|raw)/(.+)", "raw.githubusercontent.com", r"/\1/\2"),
    (r"gist\.github\.com", r"/([^/]+/[0-9a-f]+)/?", "gist.githubusercontent.com", r"/\1/raw"),
    (r"(?:www\.)?huggingface\.co", r"/(.+)/blob/(.+)", "huggingface.co", r"/\1/raw/\2"),
)


@dataclass(frozen=True)
class Network:
    """What fetching touches of the world.

    `addresses` gives the IP addresses of a host and port, `allowed` says which of them may be asked, `connect` opens
    a connection to one of them on behalf of the host, with a time limit in seconds.
    """

    addresses: Callable[[str, int], list[str]]
    allowed: Callable[[str], bool]
    connect: Callable[[str, int, str, float], http.client.HTTPConnection]


def is_url(source: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE) is not None


def split_entry(source: str) -> tuple[str, str | None]:
    """`https://host/op.py:Name` as the address and `Name`."""
    found = _ENTRY.search(source, source.rfind("/"))
    return (source[: found.start()], found["entry"]) if found else (source, None)


def raw_address(address: str) -> str:
    """The address of the file that a page of GitHub or Hugging Face shows; other addresses as they are.

    Raises BadInput for anything but https, and for an address with a user name in it.
    """
    parts = _parts(address)
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
    for host, pattern, raw_host, raw_path in _PAGES:
        found = re.fullmatch(pattern, path)
        if found and re.fullmatch(host, parts.netloc.lower()):
            return urlunsplit(("https", raw_host, found.expand(raw_path), "", ""))
    return urlunsplit(("https", parts.netloc, path or "/", parts.query, ""))


def fetch(address: str, network: Network | None = None, *, largest: int = LARGEST, seconds: float = SECONDS) -> str:
    """The text at an https address, after at most five redirects.

    Args:
        largest: bytes; a longer answer is refused.
        seconds: for everything together.

    Raises:
        BadInput: the address is no public https address, the server does not answer with text in UTF-8, or a limit
            is passed.
    """
    network = network or Network(_addresses, is_public, _Pinned)
    deadline = time.monotonic() + seconds
    current = address
    for _ in range(REDIRECTS + 1):
        parts = _parts(current)
        connection = _connected(parts, network, current, seconds)
        try:
            with _cut_off(connection, deadline), _asked(connection, parts, current) as answer:
                if answer.status not in _MOVED:
                    text = _text(answer, current, largest)
                    if time.monotonic() < deadline:
                        return text
                    raise TimeoutError
                target = answer.getheader("Location")
        except (OSError, http.client.HTTPException) as error:
            raise _failed(current, error, late=time.monotonic() >= deadline) from None
        finally:
            connection.close()
        if not target:
            raise BadInput(f"the server answers {answer.status} without saying where to", current, _BY_HAND)
        current = urljoin(current, target)
    raise BadInput(f"the server redirects more than {REDIRECTS} times", address, _BY_HAND)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet: no loopback, private, link-local or embedded one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip.sixtofour is not None or ip.teredo is not None or ip in ipaddress.ip_network("64:ff9b::/96"):
            return False
    return ip.is_global and not ip.is_multicast


class _Pinned(http.client.HTTPSConnection):
    """Speaks TLS as `host` with the one address that was checked, so that a second look-up can't give another one."""

    def __init__(self, host: str, port: int, address: str, seconds: float) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(host, port, timeout=seconds, context=self._tls)
        self._address = address

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


def _parts(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"the address is malformed: {error}", address, "check the address") from None
    if parts.scheme.lower() != "https":
        raise BadInput(f"the address is {parts.scheme or 'no'}:// and not https://", address, _BY_HAND)
    if not host or any(ord(c) <= 32 or ord(c) == 127 for c in address):
        raise BadInput("the address is malformed", address.strip(), "write https://HOST/PATH.py")
    if parts.username is not None or parts.password is not None:
        raise BadInput("the address holds a user name or password", host, "drop it; " + _BY_HAND)
    return parts


def _connected(parts: SplitResult, network: Network, shown: str, seconds: float) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or 443
    try:
        addresses = network.addresses(host, port)
    except (OSError, UnicodeError) as error:
        raise BadInput(
            f"the host {host} is not found: {getattr(error, 'strerror', None) or error}",
            shown,
            f"check the address and the network; or {_BY_HAND}",
        ) from None
    refused = [address for address in addresses if not network.allowed(address)]
    if refused or not addresses:
        raise BadInput(
            f"{host} is {refused[0] if refused else 'nowhere'}, which is no address of the public internet",
            shown,
            _BY_HAND,
        )
    return network.connect(host, port, addresses[0], seconds)


def _asked(connection: http.client.HTTPConnection, parts: SplitResult, shown: str) -> http.client.HTTPResponse:
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    headers = {"User-Agent": f"liger-dev/{__version__}", "Accept": "text/plain, */*", "Accept-Encoding": "identity"}
    try:
        connection.request("GET", target, headers=headers)
        return connection.getresponse()
    except (http.client.InvalidURL, UnicodeError) as error:
        raise BadInput(f"the address is malformed: {error}", shown, "check the address") from None


def _text(answer: http.client.HTTPResponse, shown: str, largest: int) -> str:
    if answer.status != 200:
        raise BadInput(
            f"the server answers {answer.status} {answer.reason}", shown, f"check the address; or {_BY_HAND}"
        )
    kind = (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower()
    if not _TEXT.fullmatch(kind):
        raise BadInput(
            f"the server sends {kind or 'an unnamed type'} and not a text file",
            shown,
            "name the raw file; pages of github.com/.../blob/ and huggingface.co/.../blob/ are understood",
        )
    if (answer.getheader("Content-Encoding") or "identity").lower() != "identity":
        raise BadInput("the server sends compressed data", shown, _BY_HAND)
    data = answer.read(largest + 1)
    if len(data) > largest:
        raise BadInput(f"the file is larger than {largest:,} bytes", shown, _BY_HAND)
    if answer.length:
        raise http.client.IncompleteRead(data, answer.length)
    if b"\0" in data:
        raise BadInput("the server sends no text: it holds a null byte", shown, "name a Python file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("the text is not UTF-8", f"{shown}, byte {error.start}", _BY_HAND) from None


@contextmanager
def _cut_off(connection: http.client.HTTPConnection, deadline: float) -> Iterator[None]:
    """Connects, and hangs up at the deadline: a server that trickles would pass every limit on a single read."""
    connection.timeout = max(deadline - time.monotonic(), 0.001)
    connection.connect()
    sock = connection.sock

    def hang_up() -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(deadline - time.monotonic(), 0), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _failed(shown: str, error: Exception, *, late: bool) -> BadInput:
    if late or isinstance(error, TimeoutError):
        return BadInput("the server takes too long", shown, f"try again; or {_BY_HAND}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return BadInput(f"the server's certificate is not valid: {error.verify_message}", shown, _BY_HAND)
    if isinstance(error, http.client.IncompleteRead):
        return BadInput("the answer ends early", shown, f"try again; or {_BY_HAND}")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return BadInput(f"the server can't be reached: {reason}", shown, f"check the network; or {_BY_HAND}")
