"""Big numeric tables read block by block: gzipped CSV without header, and arrays inside an `.npz`."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnpar.errors import InputError

__all__ = ["csv_array", "csv_blocks", "csv_width", "npz_blocks", "npz_shape"]

Array = npt.NDArray[Any]
_CELLS = 1 << 23


def csv_blocks(path: Path, dtype: npt.DTypeLike) -> Iterator[Array]:
    """Row blocks `[n, columns]` of a `.csv.gz` without header; empty cells are NaN (floating `dtype` only).

    Raises:
        InputError: missing, truncated, or not a table of numbers.
    """
    import pandas

    with _faults_of(path):
        rows = max(1, _CELLS // csv_width(path))
        # A blank line is a missing value where there is one column.
        with pandas.read_csv(
            path, compression="gzip", header=None, dtype=dtype, chunksize=rows, skip_blank_lines=False
        ) as reader:
            for frame in reader:
                yield frame.to_numpy()


def csv_width(path: Path) -> int:
    """Number of columns, from the first row."""
    import pandas

    with _faults_of(path):
        return int(pandas.read_csv(path, compression="gzip", header=None, nrows=1).shape[1])


def csv_array(path: Path, num_rows: int, dtype: npt.DTypeLike) -> Array:
    """The table `[num_rows, columns]` in one array; the text never is in memory as a whole.

    Raises:
        InputError: as `csv_blocks`, or another number of rows.
    """
    out: Array = np.empty((num_rows, csv_width(path)), dtype)
    start = 0
    for block in csv_blocks(path, dtype):
        stop = start + len(block)
        if stop <= num_rows:
            out[start:stop] = block
        start = stop
    if start != num_rows:
        raise InputError(f"dataset file {path}", [f"has {start} rows instead of {num_rows}; fetch it again"])
    return out


def npz_shape(path: Path, name: str) -> tuple[int, ...] | None:
    """Shape of an array inside an `.npz`, from its header; None where it has no such array."""
    with _faults_of(path), zipfile.ZipFile(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            return None
        with archive.open(f"{name}.npy") as file:
            return _header(file, path)[0]


def npz_blocks(path: Path, name: str) -> Iterator[Array]:
    """An array `[n, F]` or `[n]` inside an `.npz` as flat blocks, of whole rows where F is small."""
    with _faults_of(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        shape, dtype = _header(file, path)
        left = math.prod(shape)
        step = max(1, _CELLS // shape[-1]) * shape[-1] if len(shape) == 2 and shape[-1] <= _CELLS else _CELLS
        while left:
            count = min(step, left)
            data = file.read(count * dtype.itemsize)
            if len(data) < count * dtype.itemsize:
                raise EOFError(f"{name} ends early")
            yield np.frombuffer(data, dtype)
            left -= count


def _header(file: Any, path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject or fortran:
        raise InputError(
            f"dataset file {path}", ["holds Python objects or column-major arrays, which are not read"]
        )
    return shape, dtype


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    title = f"dataset file {path}"
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(title, ["is missing; fetch the dataset again, or correct dataset.path"]) from error
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(title, [f"truncated or corrupt ({error}); fetch it again"]) from error
    except (ValueError, TypeError) as error:
        raise InputError(title, [f"is not a table of numbers: {error}"]) from error
