import json

import numpy as np
import pytest

from gnnpar.cli.data import main
from gnnpar.errors import InputError


def run(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_list(capsys):
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "format=json"))}
    assert rows["digits"]["on_disk"] and not rows["ogbn-arxiv"]["on_disk"]
    assert rows["cora"]["num_nodes"] == 2708 and rows["cora"]["published"][0]["model"].startswith("GCNII")
    table = run(capsys, "list")
    lines = {line.split()[0]: line.split() for line in table.splitlines()}
    assert lines["digits"][1:6] == ["yes", "1797", "24.7K", "64", "10"]
    assert lines["ogbn-papers100M"][1:5] == ["111M", "1.62G", "128", "172"]


def test_info(capsys):
    facts = json.loads(run(capsys, "info", "karate", "format=json"))
    assert facts["graph"]["vertices"] == 34 and facts["graph"]["edge_homophily"] == 0.859
    text = run(capsys, "info", "karate")
    assert "Zachary" in text and "vertices: 34" in text and "symmetric: True" in text


def test_info_and_convert_of_a_file(capsys, tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, edge_index=np.array([[0, 1], [1, 2]]), x=np.eye(3), y=np.array([0, 1, 1]))
    given = ("npz", f"dataset.path={path}", "dataset.symmetrize=true")
    facts = json.loads(run(capsys, "info", *given, "format=json"))
    assert facts["graph"]["edges"] == 4 and facts["on_disk"]
    out = tmp_path / "out.npz"
    facts = json.loads(run(capsys, "convert", *given, f"out={out}", "format=json"))
    assert facts["store"].startswith(str(tmp_path / "home" / "stores" / "mine-")) and facts["bytes"] > 0
    with np.load(out) as arrays:
        assert arrays["edge_index"].shape == (2, 4)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["lst"], "unknown command 'lst'; choose one of list, info, convert, fetch"),
        (["info"], "name a dataset"),
        (["info", "digitz"], "digits"),
        (["list", "digits"], "did you mean gnnpar data info"),
        (["list", "format=xml"], "choose table or json"),
        (["fetch"], "name one dataset"),
        (["fetch", "nothing"], "has no card"),
        (["fetch", "ogbn-products"], "download of 1.38 GB .* add --yes"),
        (["info", "npz", "dataset.path=/nowhere/x.npz"], "not on disk: nothing to read at /nowhere/x.npz"),
        (["convert", "npz", "dataset.path=/nowhere/x.npz"], "not on disk"),
    ],
)
def test_mistakes(argv, message):
    with pytest.raises(InputError, match=message):
        main(argv)


def test_usage(capsys):
    assert main([]) == 2
    assert "gnnpar data fetch NAME" in capsys.readouterr().out
    assert "gnnpar data fetch NAME" in run(capsys, "--help")
