import hashlib
import http.server
import threading
import zipfile

import pytest

from gnnpar import data
from gnnpar.data.cards import Card, Download
from gnnpar.data.fetch import fetch
from gnnpar.errors import InputError


def card(url, **changes):
    download = Download(**{"url": url, "num_bytes": 1000, **changes})
    return Card(name="some", title="", source="", licence="", transform="", split="", download=download)


@pytest.fixture
def server(tmp_path):
    """A web server of this machine over `tmp_path/www`; its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "www"))

        def log_message(self, *args):
            pass

    (tmp_path / "www").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_fetch_checks_unpacks_and_keeps(tmp_path, server, own_home):
    file = tmp_path / "www" / "some.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("some/raw/a.csv", "1,2\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    seen = []
    wanted = card(f"{server}/some.zip", sha256=digest, unpack=True)
    folder = fetch(wanted, progress=lambda done, total: seen.append((done, total)))
    assert folder == own_home / "raw" / "some" and (folder / "some/raw/a.csv").read_text() == "1,2\n"
    assert seen[-1] == (file.stat().st_size,) * 2
    file.unlink()
    assert fetch(wanted) == folder


def test_a_wrong_checksum_leaves_nothing(tmp_path, server, own_home):
    (tmp_path / "www" / "some.npz").write_bytes(b"other")
    with pytest.raises(InputError, match="SHA-256"):
        fetch(card(f"{server}/some.npz", sha256="0" * 64))
    assert [path.name for path in (own_home / "raw").iterdir()] == ["some.lock"]


def test_a_broken_archive_leaves_nothing(tmp_path, server, own_home):
    (tmp_path / "www" / "some.zip").write_bytes(b"PK no")
    with pytest.raises(InputError, match="broke off"):
        fetch(card(f"{server}/some.zip", unpack=True))
    assert [path.name for path in (own_home / "raw").iterdir()] == ["some.lock"]


def test_no_network(own_home):
    with pytest.raises(
        InputError, match=r"not on disk, and no network: .*put it into .*raw/some, or set dataset.path"
    ):
        fetch(card("http://127.0.0.1:9/some.npz"))
    assert not (own_home / "raw" / "some").exists()


def test_large_downloads_need_consent_and_nothing_asks(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(InputError, match=r"download of 2.00 GB .* add --yes"):
        fetch(card("http://127.0.0.1:9/some.npz", num_bytes=2_000_000_000))


def test_what_cannot_be_fetched_says_how_to_get_it():
    with pytest.raises(InputError, match="save_npz"):
        fetch(data.find_card("cora"))
    with pytest.raises(InputError, match="nothing to fetch"):
        fetch(data.find_card("karate"))
