"""Addresses are read over real connections to a server on this machine; every refusal is met once."""

import http.client
import shutil
import ssl
import subprocess
import threading
import time

from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer

import pytest

from liger_dev import fetching
from liger_dev.errors import BadInput
from liger_dev.fetching import Network
from liger_dev.fetching import fetch
from liger_dev.fetching import is_public
from liger_dev.fetching import raw_address
from liger_dev.fetching import split_entry

TEXT = "def square(x):\n    return x * x  # ünïcode\n"
ANSWERS = {
    "/op.py": (200, {"Content-Type": "text/plain; charset=utf-8"}, TEXT.encode()),
    "/moved": (302, {"Location": "/op.py"}, b""),
    "/moved-far": (301, {"Location": "https://elsewhere.test/op.py"}, b""),
    "/to-http": (302, {"Location": "http://files.test/op.py"}, b""),
    "/to-file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/to-inside": (302, {"Location": "https://inside.test/op.py"}, b""),
    "/to-localhost": (302, {"Location": "https://127.0.0.1/op.py"}, b""),
    "/to-nowhere": (302, {}, b""),
    "/loop": (302, {"Location": "/loop"}, b""),
    "/page": (200, {"Content-Type": "text/html"}, b"<html></html>"),
    "/unnamed": (200, {}, b"x"),
    "/gzip": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"x"),
    "/large": (200, {"Content-Type": "text/plain"}, b"#" * 5001),
    "/latin": (200, {"Content-Type": "text/plain"}, b"# caf\xe9"),
    "/binary": (200, {"Content-Type": "application/octet-stream"}, b"\0\1"),
    "/short": (200, {"Content-Type": "text/plain", "Content-Length": "90"}, b"x = 1\n"),
}
HOSTS = {
    "files.test": ["93.184.216.34"],
    "elsewhere.test": ["2606:2800:220:1::1"],
    "inside.test": ["10.0.0.8"],
    "mixed.test": ["93.184.216.34", "192.168.1.1"],
    "127.0.0.1": ["127.0.0.1"],
}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.headers["Host"], self.path))
        if self.path in ("/trickle", "/slow-head"):
            return self.trickle()
        status, headers, body = ANSWERS.get(self.path.partition("?")[0], (404, {}, b""))
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def trickle(self):
        """A byte now and then, each well within the limit of a single read."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" if self.path == "/trickle" else b"HTTP/1.1 2"
        self.close_connection = True
        try:
            self.wfile.write(head)
            for _ in range(100):
                self.wfile.write(b"#")
                time.sleep(0.05)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def network(server):
    """The names of `HOSTS`; what may be asked is answered by the server on this machine, without TLS."""

    def addresses(host, port):
        if host not in HOSTS:
            raise OSError(-2, "Name or service not known")
        return HOSTS[host]

    def connect(host, port, address, seconds):
        plain = http.client.HTTPConnection(host, port, timeout=seconds)
        plain._create_connection = lambda _, *rest: fetching.socket.create_connection(server.server_address, *rest)
        return plain

    return Network(addresses, is_public, connect)


def refused(read):
    with pytest.raises(BadInput) as caught:
        read()
    assert caught.value.exit_code == 2 and caught.value.todo and caught.value.where
    return caught.value.what


def test_text_comes_as_it_is(network, server):
    assert fetch("https://files.test/op.py?ref=main#L3", network) == TEXT
    assert server.asked == [("files.test:443", "/op.py?ref=main")]


def test_redirects_are_followed(network, server):
    assert fetch("https://files.test/moved", network) == TEXT
    assert fetch("https://files.test/moved-far", network) == TEXT
    assert server.asked[-1] == ("elsewhere.test:443", "/op.py")


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("http://files.test/op.py", "the address is http:// and not https"),
        ("file:///etc/passwd", "the address is file:// and not https"),
        ("https://me:secret@files.test/op.py", "the address holds a user name or password"),
        ("https:///op.py", "the address is malformed"),
        ("https://files.test:port/op.py", "the address is malformed"),
        ("https://files.test/a b.py", "the address is malformed"),
        ("https://files.test/a\r\nHost: x", "the address is malformed"),
        ("https://unknown.test/op.py", "the host unknown.test is not found: Name or service not known"),
        ("https://inside.test/op.py", "inside.test is 10.0.0.8, which is no address of the public internet"),
        ("https://mixed.test/op.py", "mixed.test is 192.168.1.1, which is no address of the public internet"),
        ("https://127.0.0.1/op.py", "127.0.0.1 is 127.0.0.1, which is no address of the public internet"),
    ],
)
def test_address_that_is_not_asked(network, server, address, what):
    assert refused(lambda: fetch(address, network)).startswith(what)
    assert server.asked == []


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("to-http", "the address is http:// and not https://"),
        ("to-file", "the address is file:// and not https://"),
        ("to-inside", "inside.test is 10.0.0.8, which is no address of the public internet"),
        ("to-localhost", "127.0.0.1 is 127.0.0.1, which is no address of the public internet"),
        ("to-nowhere", "the server answers 302 without saying where to"),
        ("loop", "the server redirects more than 5 times"),
        ("absent", "the server answers 404 Not Found"),
        ("page", "the server sends text/html and not a text file"),
        ("unnamed", "the server sends an unnamed type and not a text file"),
        ("gzip", "the server sends compressed data"),
        ("large", "the file is larger than 5,000 bytes"),
        ("latin", "the text is not UTF-8"),
        ("binary", "the server sends no text: it holds a null byte"),
        ("short", "the answer ends early"),
    ],
)
def test_answer_that_is_refused(network, server, path, what):
    assert refused(lambda: fetch(f"https://files.test/{path}", network, largest=5000)) == what
    assert len(server.asked) == (6 if path == "loop" else 1)


@pytest.mark.parametrize("path", ["trickle", "slow-head"])
def test_server_that_trickles_is_cut_off(network, path):
    started = time.monotonic()
    assert refused(lambda: fetch(f"https://files.test/{path}", network, seconds=0.3)) == "the server takes too long"
    assert time.monotonic() - started < 2


def test_closed_port(network):
    with fetching.socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    closed = Network(lambda *_: ["127.0.0.1"], lambda _: True, fetching._Pinned)
    assert refused(lambda: fetch(f"https://files.test:{port}/op.py", closed)).startswith("the server can't be reached")


@pytest.fixture
def tls_server(server, tmp_path):
    """The same server behind TLS, with a certificate of its own for files.test."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=files.test"
    files = ["-addext", "subjectAltName=DNS:files.test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.certificate = certificate
    return server


def test_tls_is_spoken_with_the_checked_address_and_the_certificate_counts(tls_server, monkeypatch):
    seen = []
    here = Network(lambda *_: ["127.0.0.1"], lambda address: seen.append(address) or True, fetching._Pinned)
    address = f"https://files.test:{tls_server.server_address[1]}/op.py"
    assert refused(lambda: fetch(address, here)).startswith("the server's certificate is not valid: self")
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_server.certificate))
    assert fetch(address, here) == TEXT
    other = address.replace("files.test", "elsewhere.test")
    assert "certificate is not valid: Hostname mismatch" in refused(lambda: fetch(other, here))
    assert seen == ["127.0.0.1"] * 3


def test_this_machine_is_refused_without_any_hook():
    for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0", "2130706433"):
        assert refused(lambda: fetch(f"https://{host}:1/op.py")).endswith("which is no address of the public internet")


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_public_addresses(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    "127.0.0.1 127.8.8.8 10.1.2.3 172.16.0.1 172.31.255.255 192.168.16.1 169.254.169.254 100.64.0.1 0.0.0.0 "
    "255.255.255.255 224.0.0.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 "
    "2002:0a00:0001:: 64:ff9b::10.0.0.1".split(),
)
def test_other_addresses_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    ("page", "raw"),
    [
        ("https://github.com/o/r/blob/main/src/op.py", "https://raw.githubusercontent.com/o/r/main/src/op.py"),
        ("https://github.com/o/r/blob/v1.0/op.py?plain=1#L10-L20", "https://raw.githubusercontent.com/o/r/v1.0/op.py"),
        ("https://www.github.com/o/r/raw/main/op.py", "https://raw.githubusercontent.com/o/r/main/op.py"),
        ("https://gist.github.com/o/0123abc", "https://gist.githubusercontent.com/o/0123abc/raw"),
        ("https://huggingface.co/o/m/blob/main/modeling_m.py", "https://huggingface.co/o/m/raw/main/modeling_m.py"),
        ("https://huggingface.co/spaces/o/s/blob/main/a.py", "https://huggingface.co/spaces/o/s/raw/main/a.py"),
        ("https://huggingface.co/o/m/resolve/main/a.py", "https://huggingface.co/o/m/resolve/main/a.py"),
        ("https://files.test/a.py?x=1#top", "https://files.test/a.py?x=1"),
        ("https://github.com.evil.test/o/r/blob/main/op.py", "https://github.com.evil.test/o/r/blob/main/op.py"),
        ("HTTPS://files.test", "https://files.test/"),
    ],
)
def test_pages_become_raw_files(page, raw):
    assert raw_address(page) == raw


@pytest.mark.parametrize(
    ("source", "address", "entry"),
    [
        ("https://h/op.py:Norm", "https://h/op.py", "Norm"),
        ("https://h/op.py", "https://h/op.py", None),
        ("https://h:8443/op.py", "https://h:8443/op.py", None),
        ("https://h:8443", "https://h:8443", None),
        ("https://h/0123abc:f", "https://h/0123abc", "f"),
    ],
)
def test_name_after_an_address(source, address, entry):
    assert split_entry(source) == (address, entry)
