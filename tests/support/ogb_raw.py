"""Tiny datasets in OGB's raw layouts: text tables (csv.gz) and, as ogbn-papers100M, compressed arrays."""

import gzip

import numpy as np

N, E = 12, 30


def write_csv(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        "".join((",".join("" if v != v else f"{v:g}" for v in np.atleast_1d(row)), "\n")) for row in table
    )
    with gzip.open(path, "wt") as file:
        file.writelines(rows)


def content(seed=0, features=3, edge_features=0, tasks=1):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (N, tasks)) if tasks > 1 else (np.arange(N) % 3)[:, None]
    return {
        "edge": np.unique(rng.integers(0, N, (E, 2)), axis=0),
        "node-feat": np.round(rng.random((N, features)), 3) if features else None,
        "edge-feat": np.round(rng.random((E, edge_features)), 3) if edge_features else None,
        "node-label": labels.astype(float),
        "split": {"train": np.arange(0, 6), "valid": np.arange(6, 9), "test": np.arange(9, N)},
    }


def write_text(folder, found, scheme):
    e = len(found["edge"])
    for name in ("edge", "node-feat", "edge-feat", "node-label"):
        if found[name] is not None:
            write_csv(
                folder / "raw" / f"{name}.csv.gz", found[name][:e] if name == "edge-feat" else found[name]
            )
    write_csv(folder / "raw" / "num-node-list.csv.gz", [N])
    write_csv(folder / "raw" / "num-edge-list.csv.gz", [e])
    for part, ids in found["split"].items():
        write_csv(folder / "split" / scheme / f"{part}.csv.gz", ids)
    return folder


def write_binary(folder, found, scheme):
    (folder / "raw").mkdir(parents=True)
    np.savez_compressed(
        folder / "raw" / "data.npz",
        edge_index=found["edge"].T.copy(),
        node_feat=found["node-feat"].astype(np.float32),
        num_nodes_list=np.array([N]),
        num_edges_list=np.array([len(found["edge"])]),
        node_year=np.zeros((N, 1)),
    )
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=found["node-label"].astype(np.float32))
    for part, ids in found["split"].items():
        write_csv(folder / "split" / scheme / f"{part}.csv.gz", ids)
    return folder
