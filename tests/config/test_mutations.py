"""A hundred random mutations of a configuration: a message that names the key, or one that composes."""

import random

import pytest

from gnnpar.cli.main import main
from gnnpar.config import RunConfig, compose, from_yaml, group_choices, to_yaml
from gnnpar.config.constraints import describe
from gnnpar.config.section import key_kinds
from gnnpar.errors import InputError
from gnnpar.train.order import schedule_faults

KINDS = key_kinds(RunConfig)
KEYS = sorted(set(KINDS) - {"run.dir", "run.overwrite", "partition.path", "dataset.path"})
VALUES = (
    *(
        "-1",
        "0",
        "1",
        "2",
        "3",
        "7",
        "1000000",
        "99999999999999999999999",
        "0.5",
        "-0.5",
        "1.5",
        "1e309",
        "1e-3",
    ),
    *(
        "nan",
        "inf",
        "-inf",
        "null",
        "true",
        "false",
        "",
        " ",
        "x",
        "'x'",
        "None",
        "[]",
        "[1]",
        "[1,2]",
        "[0,-1]",
    ),
    *(
        "[[1]]",
        "{}",
        "{a: 1}",
        "a,b",
        "1,2",
        "range(3)",
        "range(2),range(3)",
        "glob(*)",
        "choice(1,2)",
        "[1,",
    ),
    *(
        "${seed}",
        "${nothing}",
        "${",
        "$",
        "'",
        '"',
        "\\",
        "🙂",
        "a b",
        "=",
        "a=b",
        "int(3)",
        "sort(2,1)",
        "%s",
    ),
    *("cuda", "cuda:0", "cuda:x", "../../etc/passwd", "full_batch", "zb_v", "gat", "sgd", "drop", "custom"),
)


def misspelt(draw, word):
    place = draw.randrange(len(word))
    return draw.choice(
        [
            word[:place] + word[place + 1 :],
            word[:place] + word[place] + word[place:],
            word + "x",
            word.upper(),
        ]
    )


def mutation(draw):
    """Overrides, and the keys of which a message must name one."""
    kind = draw.choice(["value", "value", "small", "small", "name", "group", "several", "word"])
    if kind == "small":
        key = draw.choice([key for key in KEYS if describe(KINDS[key]).startswith(("integer", "number"))])
        return [f"{key}={draw.choice(['1', '2', '3', '0.5'])}"], [key]
    if kind == "value":
        key = draw.choice(KEYS)
        return [f"{key}={draw.choice(VALUES)}"], [key]
    if kind == "name":
        key = misspelt(draw, draw.choice(KEYS))
        return [f"{key}=1"], [key]
    if kind == "group":
        choices = group_choices()
        name = draw.choice(sorted(choices))
        found = draw.choice([misspelt(draw, draw.choice(choices[name])), draw.choice(VALUES)])
        return [f"{name}={found}"], [name]
    if kind == "word":
        word = draw.choice(
            ["--seed", "seed", "=3", "train", "train=1", "-x", "~seed", "+seed=1", "++a=1", "seed=="]
        )
        return [word], [word.strip("-=+~").split("=")[0], word]
    keys = draw.sample(
        [
            "parallel.stages",
            "parallel.ways",
            "parallel.layers_per_stage",
            "model.num_layers",
            "batch.num_chunks",
        ],
        3,
    ) + draw.sample(
        ["model.heads", "model.hidden", "optimizer.momentum", "schedule.chunks", "schedule.waves"], 2
    )
    words = [f"{key}={draw.choice(['1', '2', '3', '5', '[1,2]', '[3]', '0.5', 'null'])}" for key in keys]
    groups = [f"{name}={draw.choice(names)}" for name, names in group_choices().items() if name != "dataset"]
    return [*groups, *words], [*keys, "schedule.name", "batch.kind", "parallel.", "history.", "model."]


@pytest.mark.parametrize("block", range(4))
def test_a_mutation_is_refused_by_name_or_composes(block, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    draw, refused = random.Random(block), 0
    for _ in range(25):
        words, keys = mutation(draw)
        try:
            config = compose(words)
        except InputError as error:
            refused += 1
            if refused <= 5:  # the same through the command, which composes once more
                assert main(["train", *words]) == 2, words
                printed = capsys.readouterr()
                assert printed.out == "" and "Traceback" not in printed.err
                assert printed.err.startswith("error: ")
            for fault in error.faults:
                assert any(key in fault for key in keys), (words, fault)
            continue
        assert from_yaml(to_yaml(config)) == config, words
        for fault in schedule_faults(config):  # refused later, before a process starts
            assert any(key in fault for key in keys), (words, fault)
    assert refused > 5
    assert list(tmp_path.iterdir()) == []
