"""The parts of a stage: recorded by layer and chunk where a trace is asked for, else not there at all."""

from collections import Counter

import pytest
from runtime.cases import chunked_graph, make_config, make_trainer

from gnnpar.config.schema import MemoryConfig
from gnnpar.dist import Context
from gnnpar.trace import EventLog, Recorder, read_log
from gnnpar.train.job import make_model
from gnnpar.train.trainer import Trainer

CHUNKS, LAYERS = 4, 3


def test_stages_that_are_not_traced_have_no_hooks():
    trainer = make_trainer(make_config())
    for aggregation in trainer.executor.stages[0, 0].aggregations:
        assert not {"forward", "pull_back", "push_back", "share"} & vars(aggregation).keys()


@pytest.mark.parametrize("layer", ["gcnii", "resgcn", "gat"])
@pytest.mark.parametrize("recompute", [False, True])
def test_every_layer_and_chunk_is_recorded_and_steps_stay_as_they_are(tmp_path, layer, recompute):
    config = make_config({"name": layer}, chunks=CHUNKS, memory=MemoryConfig(recompute=recompute))
    recorder = Recorder(EventLog(tmp_path / "log", {"rank": 0}))
    chunked = chunked_graph(CHUNKS)
    traced = Trainer(make_model(config, chunked.graph), chunked, config, Context.single(), recorder)
    plain = make_trainer(config)
    for epoch in (1, 2):
        recorder.start_epoch(epoch)
        assert traced.train_step().loss == plain.train_step().loss
    recorder.end_epoch()
    recorder.close()
    log = read_log(tmp_path / "log")
    second = log.events[[log.texts[kind] for kind in log.events["kind"]].index("epoch") + 1 :]
    found = Counter(
        (log.texts[e["kind"]], int(e["layer"]), int(e["batch"])) for e in second if e["layer"] >= 0
    )
    layers = {place for _, place, _ in found}
    assert len(layers) == LAYERS
    again = 2 if layer == "gat" and recompute else 1  # runs the aggregation again in the backward pass
    assert found == {
        (kind, place, chunk): times
        for kind, times in (("aggregate", again), ("aggregate back", 2))
        for place in layers
        for chunk in range(CHUNKS)
    }
    kinds = Counter(log.texts[kind] for kind in second["kind"])
    assert kinds["F"] == kinds["B"] == CHUNKS and kinds["step"] == kinds["epoch"] == 1
