"""Columns, ways, processes and chunks: each process in one place, each chunk with one way of a column."""

from dataclasses import replace

import pytest

from gnnpar.config.schema import BatchConfig, ParallelConfig, RunConfig
from gnnpar.dist import Mesh


@pytest.mark.parametrize("ways", [(1,), (1, 1, 1), (2, 1), (1, 2, 1), (3, 2), (4, 2, 1, 3)])
def test_processes_and_places_are_one_to_one(ways):
    mesh = Mesh(ways, 24)
    assert mesh.size == sum(ways)
    places = [mesh.place_of(rank) for rank in range(mesh.size)]
    assert places == [(column, way) for column, count in enumerate(ways) for way in range(count)]
    assert [mesh.process_of(*place) for place in places] == list(range(mesh.size))
    assert [rank for column in range(len(ways)) for rank in mesh.processes_of(column)] == list(range(mesh.size))


@pytest.mark.parametrize(("ways", "size"), [((1, 1), 1), ((2, 1), 2), ((3, 2), 6), ((4, 2, 3), 12), ((5,), 5)])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_way_has_as_many_chunks_of_every_slot(ways, size, slots):
    parallel = ParallelConfig(stages=len(ways), ways=ways)
    mesh = Mesh.of(
        RunConfig(parallel=parallel, batch=BatchConfig(kind="clusters", num_chunks=slots))
    )
    assert mesh.slot_size == size and mesh.num_chunks == size * slots
    assert mesh.is_plain == (max(ways) == 1)
    for column, count in enumerate(ways):
        for slot in range(slots):
            owners = [mesh.owner(column, place * slots + slot) for place in range(size)]
            assert owners == [rank for rank in mesh.processes_of(column) for _ in range(size // count)]


def test_one_number_is_that_of_every_stage():
    config = RunConfig(
        parallel=ParallelConfig(stages=3, ways=2), batch=BatchConfig(kind="clusters", num_chunks=4)
    )
    assert Mesh.of(config) == Mesh((2, 2, 2), 8)
    assert Mesh.of(RunConfig()) == Mesh((1,), 1)


def test_replicas_are_further_ways():
    """Of micro-batches that read nothing of each other: no process has to know which of the two it is."""
    batch = BatchConfig(kind="clusters", num_chunks=4)
    replicas = RunConfig(batch=batch, parallel=ParallelConfig(stages=2, replicas=3, ways=[1, 2]))
    assert Mesh.of(replicas) == Mesh.of(replace(replicas, parallel=ParallelConfig(stages=2, ways=[3, 6])))
    batch = BatchConfig(kind="saint", num_chunks=4, per_step=5)
    assert Mesh.of(replace(replicas, batch=batch)) == Mesh((3, 6), 30)
