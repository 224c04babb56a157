import json
import multiprocessing
import time

import numpy as np
import pytest

from gnnpar.data.lock import file_lock
from gnnpar.data.store import cached, open_store
from gnnpar.errors import InputError, RunError


def build(writer):
    writer.put("a", np.arange(10))
    writer.put("empty", np.zeros((0, 3), np.float32))
    writer.create("b", (4, 2), np.float32)[:] = 7
    writer.meta["note"] = "x"


def test_round_trip_maps_copy_on_write(tmp_path):
    store = cached("k", build, home=tmp_path)
    assert store.arrays["a"].tolist() == list(range(10)) and store.meta == {"note": "x"}
    assert store.arrays["empty"].shape == (0, 3) and (store.arrays["b"] == 7).all()
    assert isinstance(store.arrays["a"], np.memmap) and store.arrays["a"].flags.writeable
    store.arrays["a"][0] = 99
    assert open_store(tmp_path / "k").arrays["a"][0] == 0


def test_is_built_once(tmp_path):
    calls = []
    for _ in range(3):
        cached("k", lambda writer: (calls.append(1), build(writer)), home=tmp_path)
    assert calls == [1]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest", "version"])
def test_a_damaged_store_is_named_and_built_again(tmp_path, damage, caplog):
    folder = cached("k", build, home=tmp_path).folder
    file, manifest = folder / "a.npy", folder / "manifest.json"
    data = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(data[:-1])
    elif damage == "flip":
        data[-1] ^= 1
        file.write_bytes(data)
    elif damage == "remove":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 0}))
    with pytest.raises(InputError, match=r"a\.npy|manifest|format 0"):
        open_store(folder)
    assert cached("k", build, home=tmp_path).arrays["a"].tolist() == list(range(10))
    assert "built again" in caplog.text


def test_all_damaged_files_are_listed(tmp_path):
    folder = cached("k", build, home=tmp_path).folder
    for name in ("a", "b"):
        (folder / f"{name}.npy").write_bytes(b"x")
    with pytest.raises(InputError) as error:
        open_store(folder)
    assert len(error.value.faults) == 2


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail(writer):
        build(writer)
        raise InputError("dataset", ["bad"])

    with pytest.raises(InputError, match="bad"):
        cached("k", fail, home=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["k.lock"]


def test_leftovers_of_a_dead_process_are_cleared(tmp_path):
    (tmp_path / ".k.tmp-1").mkdir()
    cached("k", build, home=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k", "k.lock"]


def test_an_unwritable_home_says_what_to_set(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="GNNPAR_DATA"):
        cached("k", build, home=tmp_path / "file" / "stores")


def hold(path, ready, release):
    with file_lock(path, timeout_s=5, what="holding"):
        ready.set()
        release.wait(30)


def build_slowly(home, ready, builders):
    def slow(writer):
        builders.put(1)
        ready.set()
        time.sleep(0.3)
        build(writer)

    cached("k", slow, home=home, timeout_s=30)


@pytest.fixture
def processes():
    context = multiprocessing.get_context("spawn")
    started = []

    def start(target, *args):
        process = context.Process(target=target, args=args)
        process.start()
        started.append(process)
        return process

    yield context, start
    for process in started:
        process.kill()
        process.join(10)


def test_the_lock_names_its_holder_and_goes_with_it(tmp_path, processes):
    context, start = processes
    ready, release = context.Event(), context.Event()
    holder = start(hold, tmp_path / "lock", ready, release)
    assert ready.wait(60)
    with (
        pytest.raises(RunError, match=rf"converting k: waited .* held by process {holder.pid} on"),
        file_lock(tmp_path / "lock", timeout_s=0.1, what="converting k"),
    ):
        pass
    holder.kill()
    holder.join(10)
    with file_lock(tmp_path / "lock", timeout_s=10, what="converting k"):
        pass


def test_of_two_processes_one_builds(tmp_path, processes):
    context, start = processes
    ready, builders = context.Event(), context.Queue()
    other = start(build_slowly, tmp_path, ready, builders)
    assert ready.wait(60)

    def never(writer):
        raise AssertionError("the other process builds this store")

    assert cached("k", never, home=tmp_path, timeout_s=30).arrays["a"][3] == 3
    other.join(30)
    assert other.exitcode == 0 and builders.get(timeout=5) == 1
