import pytest

from gnnpar import data
from gnnpar.config.resources import resource_dir
from gnnpar.data.cards import read_card
from gnnpar.errors import InputError


def test_every_card_has_its_configuration_and_the_other_way_round():
    cards = {card.name for card in data.all_cards()}
    configs = {path.stem for path in (resource_dir("configs") / "dataset").glob("*.yaml")}
    assert cards == configs
    for name in cards:
        assert data.dataset_config(name).name == name
        card = data.find_card(name)
        builtin = data.dataset_config(name).kind in ("builtin", "generated")
        assert builtin or card.download or card.obtain, name
        assert all(0 < result.value < 100 and result.reference for result in card.published)


def test_ogb_cards_agree_with_its_index():
    from gnnpar.data.ogb import ogb_facts

    for name in ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M"):
        assert data.find_card(name).num_classes == ogb_facts(name).num_classes


def test_unknown_names_and_keys():
    with pytest.raises(InputError, match=r"'digit'.*digits"):
        data.dataset_config("digit")
    assert data.find_card("nothing") is None


def test_a_faulty_card_is_named(tmp_path):
    (tmp_path / "x.yaml").write_text("name: x\ncolour: red\n")
    (tmp_path / "y.yaml").write_text("name: x: y\n")
    for name in ("x", "y"):
        with pytest.raises(InputError, match=rf"card .*{name}.yaml"):
            read_card(tmp_path / f"{name}.yaml")
