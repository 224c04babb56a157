"""Child process that runs one partitioner: `python -P _worker.py METHOD_FILE FUNCTION FOLDER`.

A script, not a module of the package: it must start in milliseconds, so it imports numpy and the partitioner
and nothing of gnnpar (which imports torch). Reads `FOLDER/<argument>.npy`, writes `FOLDER/result.npy`.
"""

import ctypes
import importlib.util
import signal
import sys
from pathlib import Path

import numpy as np

PR_SET_PDEATHSIG = 1


def main(method_file: str, function: str, folder: Path) -> None:
    if sys.platform == "linux":
        # A parent that is killed cannot end its child, and a partitioner may run for minutes.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    spec = importlib.util.spec_from_file_location("method", method_file)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(method_file)
    method = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(method)
    arguments = {file.stem: np.load(file) for file in folder.glob("*.npy")}
    result = getattr(method, function)(**{k: v.item() if v.ndim == 0 else v for k, v in arguments.items()})
    np.save(folder / "result.npy", result)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
