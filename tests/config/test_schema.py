"""Sections made in Python check themselves."""

import dataclasses

import pytest

from gnnpar.config import DatasetConfig, HistoryConfig, ModelConfig, ParallelConfig, RunConfig, TrainConfig
from gnnpar.config.docs import configuration_page, field_docs
from gnnpar.config.resources import resource_dir
from gnnpar.config.section import key_kinds
from gnnpar.errors import InputError


def test_a_section_names_every_faulty_key():
    with pytest.raises(InputError) as caught:
        TrainConfig(lr=-1, num_epochs=0)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["train.num_epochs", "train.lr"]


def test_sections_are_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HistoryConfig().gamma = 2.0
    with pytest.raises(TypeError):
        DatasetConfig("digits")


def test_values_are_converted_and_so_compare_equal():
    assert ParallelConfig(stages=2, layers_per_stage=[1, 2]) == ParallelConfig(
        stages=2, layers_per_stage=(1, 2)
    )
    assert isinstance(HistoryConfig(gamma=2).gamma, float)
    assert isinstance(hash(HistoryConfig()), int)


def test_a_whole_run_is_checked_across_sections():
    with pytest.raises(InputError, match=r"parallel\.stages"):
        RunConfig(parallel=ParallelConfig(stages=3), model=ModelConfig(num_layers=2))


def test_replace_checks_again():
    with pytest.raises(InputError, match=r"seed"):
        dataclasses.replace(RunConfig(), seed=-1)


def test_every_key_has_a_docstring():
    documented = {key for key, _ in field_docs()}
    assert documented == set(key_kinds(RunConfig))


def test_the_configuration_page_is_current():
    page = resource_dir("configs").parent / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == configuration_page(), "run `make docs`"
