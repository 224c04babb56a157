"""The seven families that torch.distributed.pipelining also has, action by action."""

from unittest import mock

import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import lower
from gnnpar.schedule.families import FAMILIES
from gnnpar.schedule.torch_text import to_torch_csv

SHARED = [
    ("gpipe", "GPipe", 1, {}),
    ("one_f_one_b", "1F1B", 1, {}),
    ("looped_bfs", "LoopedBFS", 2, {}),
    ("looped_bfs", "LoopedBFS", 3, {"chunks": 3}),
    ("interleaved", "Interleaved1F1B", 2, {}),
    ("interleaved", "Interleaved1F1B", 3, {"chunks": 3}),
    ("zb_h1", "InterleavedZeroBubble", 1, {}),
    ("zb_h1", "InterleavedZeroBubble", 2, {"chunks": 2}),
    ("zb_v", "ZBVZeroBubble", 2, {}),
    ("dualpipe_v", "DualPipeV", 2, {}),
]


def theirs(name, num_ranks, num_micro_batches, stages_per_rank):
    """torch's own order; it wants stage objects, of which it reads three numbers."""
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
    from torch.distributed.pipelining.stage import PipelineStage

    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, num_ranks, None
    stage.num_stages = num_ranks * stages_per_rank
    kind = get_schedule_class(name)
    stages = stage if issubclass(kind, PipelineScheduleSingle) else [stage] * stages_per_rank
    order = kind(stages, num_micro_batches).pipeline_order
    return [
        [str(action) for action in order[rank] if action is not None and "REDUCE" not in str(action)]
        for rank in range(num_ranks)
    ]


def ours(name, num_ranks, num_micro_batches, options):
    text = to_torch_csv(FAMILIES[name](num_ranks, num_micro_batches, **options))
    return [line.split(",") for line in text.splitlines()]


@pytest.mark.parametrize(("name", "torch_name", "stages_per_rank", "options"), SHARED)
@pytest.mark.parametrize(
    ("num_ranks", "num_micro_batches"), [(2, 4), (2, 6), (3, 6), (4, 8), (4, 12), (8, 16)]
)
def test_same_order_on_every_rank(name, torch_name, stages_per_rank, options, num_ranks, num_micro_batches):
    expected = theirs(torch_name, num_ranks, num_micro_batches, stages_per_rank)
    mine = ours(name, num_ranks, num_micro_batches, options)
    if name == "gpipe":
        # Ours goes backward in reverse, so that chunks can accumulate gradients; torch in order.
        forwards = [row[:num_micro_batches] for row in mine]
        mine = [front + row[: num_micro_batches - 1 : -1] for front, row in zip(forwards, mine, strict=True)]
    if name == "one_f_one_b":
        # torch 2.13 numbers the forwards of its last rank, which has no warm-up, from 1.
        last = num_ranks - 1
        wrong = [f"{last}F{batch + 1}" for batch in range(num_micro_batches)]
        assert [cell for cell in expected[last] if "F" in cell] == wrong
        expected[last] = [f"{last}F{wrong.index(cell)}" if cell in wrong else cell for cell in expected[last]]
    assert mine == expected


@pytest.mark.parametrize(("name", "torch_name", "stages_per_rank", "options"), SHARED)
def test_torch_reads_our_text(name, torch_name, stages_per_rank, options):
    from torch.distributed.pipelining.schedules import _Action

    for row in ours(name, 2, 4, options):
        assert [str(_Action.from_str(cell)) for cell in row] == row


@pytest.mark.parametrize(
    "schedule", [FAMILIES["chimera"](4, 4), FAMILIES["graphpipe"](5, 4), lower(FAMILIES["gpipe"](2, 2))]
)
def test_what_torch_has_no_form_for_is_refused(schedule):
    with pytest.raises(InputError, match="one replica and a chain"):
        to_torch_csv(schedule)
