"""Compilation: lazy, cached outside the package, and optional."""

import subprocess
import sys
import textwrap

import numba
import torch

from gnnpar.graph import kernels
from gnnpar.graph.kernels import compile as compiling


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_import_alone_does_not_import_numba():
    run_python("""
        import sys, gnnpar.graph.kernels
        assert "numba" not in sys.modules
    """)


def test_everything_runs_without_numba():
    run_python("""
        import sys
        sys.modules["numba"] = None
        import torch
        from gnnpar.graph import kernels
        x = torch.randn(4, 8, requires_grad=True)
        key = kernels.DropoutKey(0, 0, 0, 0)
        kernels.relu_dropout(x, torch.arange(4), key, 0.5).sum().backward()
        kernels.pull(torch.arange(5), torch.zeros(4, dtype=torch.int32), x, torch.empty(4, 8))
    """)


def test_cache_lies_in_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    compiling._cache_folder.cache_clear()
    try:
        kernel = compiling.njit(double)
        assert kernel(21) == 42
        assert list((tmp_path / "gnnpar" / "kernels").rglob("*.nbi"))
        assert numba.config.CACHE_DIR == ""
    finally:
        compiling._cache_folder.cache_clear()


def double(x):
    return x + x


def test_after_warm_up_a_run_compiles_nothing():
    kernels.warm_up(torch.float32)
    from gnnpar.graph.kernels.loops import dropout, pull, sparse

    loops = [pull.pull_rows, pull.scatter_columns, sparse.drop_nonzeros]
    loops += [getattr(dropout, name) for name in dropout.__all__]
    counts = [len(loop.signatures) for loop in loops]
    assert all(counts)
    x, ids, key = torch.randn(9, 5), torch.arange(9), kernels.DropoutKey(0, 0, 0, 0)
    indptr, indices, scale = torch.arange(10), torch.zeros(9, dtype=torch.int32), torch.rand(9)
    kernels.pull(
        indptr, indices, x, torch.empty_like(x), self_rows=0, scale=scale, residual=x, gate=x, a=0.5, b=2
    )
    kernels.relu_dropout_scaled(x, ids, None, 0.0, None, x)
    kernels.relu_dropout_backward(x, x, 0.5, None, x)
    kernels.scale_rows(x, scale, x)
    kernels.drop(x, ids, key, 0.9, x)
    assert [len(loop.signatures) for loop in loops] == counts


def test_compiled_loops_are_chosen_where_they_can_run():
    from gnnpar.graph.kernels.backend import choose

    assert choose(None, torch.ones(1)) == "numba"
    assert choose(None, torch.ones(1, dtype=torch.float16)) == "torch"
    assert choose("torch", torch.ones(1)) == "torch"
    out = torch.empty(2, 3, dtype=torch.bfloat16)
    assert kernels.scale_rows(torch.ones_like(out), torch.ones(2, dtype=torch.bfloat16), out).sum() == 6
