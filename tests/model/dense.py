"""The layers once more, as dense matrices: written from the papers' formulas.

They share no code with the package but the hash that defines dropout masks.
"""

import torch

from gnnpar.graph import kernels


def adjacency(graph):
    """`[N, N]`: row v, column u holds the weight of u → v."""
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    weight = graph.edge_weight if graph.edge_weight is not None else torch.ones(graph.num_edges)
    source, destination = graph.edge_index
    dense[destination, source] = weight.double()
    return dense


def sym(graph):
    """D^-1/2 (A + I) D^-1/2 by in-degree."""
    a = adjacency(graph) + torch.eye(graph.num_nodes, dtype=torch.float64)
    scale = a.sum(1).pow(-0.5)
    return scale[:, None] * a * scale[None, :]


def mean(graph):
    """D^-1 A; rows without in-edges are zero."""
    a = adjacency(graph)
    return a / a.sum(1, keepdim=True).where(a.sum(1, keepdim=True) > 0, torch.ones(1, dtype=a.dtype))


def dropout(x, graph, rows, p, site=0):
    """Keyed dropout from its definition; identity in evaluation."""
    if not rows.training or p == 0:
        return x
    keep = kernels.keep_mask(
        kernels.DropoutKey(rows.seed, rows.step, rows.layer, site), graph.node_ids, x.shape[1], p
    )
    return x * keep / (1 - p)


def linear(x, module):
    out = x @ module.weight.T
    return out if module.bias is None else out + module.bias


def layer_norm(x, norm):
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def gcn(layer, h, graph, rows, carries):
    return torch.relu(
        sym(graph) @ dropout(h, graph, rows, layer.dropout) @ layer.linear.weight.T + layer.bias
    )


def sage(layer, h, graph, rows, carries):
    x = dropout(h, graph, rows, layer.dropout)
    return torch.relu(mean(graph) @ x @ layer.neigh.weight.T + linear(x, layer.root))


def gin(layer, h, graph, rows, carries):
    x = dropout(h, graph, rows, layer.dropout)
    eps = 0.0 if layer.eps is None else layer.eps
    z = adjacency(graph) @ x + (1 + eps) * x
    return torch.relu(linear(torch.relu(linear(z, layer.inner)), layer.outer))


def gcnii(layer, h, graph, rows, carries):
    x = dropout(h, graph, rows, layer.dropout)
    z = (1 - layer.alpha) * (sym(graph) @ x) + layer.alpha * carries["h0"]
    return torch.relu((1 - layer.beta) * z + layer.beta * (z @ layer.weight))


def resgcn(layer, h, graph, rows, carries):
    x = dropout(torch.relu(layer_norm(h, layer.norm)), graph, rows, layer.dropout, site=2)
    return h + sym(graph) @ x @ layer.conv.linear.weight.T + layer.conv.bias


def gat(layer, h, graph, rows, carries):
    x = (dropout(h, graph, rows, layer.dropout) @ layer.linear.weight.T).view(len(h), layer.heads, -1)
    linked = adjacency(graph).bool() | torch.eye(len(h), dtype=torch.bool)
    heads = []
    for k in range(layer.heads):
        score = (x[:, k] @ layer.destination[k])[:, None] + (x[:, k] @ layer.source[k])[None, :]
        score = torch.where(score > 0, score, layer.negative_slope * score)
        attention = torch.softmax(score.masked_fill(~linked, -torch.inf), dim=1)
        if rows.training:
            p = layer.attention_dropout
            v, u = linked.nonzero(as_tuple=True)
            key = kernels.DropoutKey(rows.seed, rows.step, rows.layer, 1)
            keep = torch.zeros_like(linked)
            keep[v, u] = kernels.edge_keep_mask(key, graph.node_ids[v], graph.node_ids[u], layer.heads, p)[
                :, k
            ]
            attention = attention * keep / (1 - p)
        heads.append(attention @ x[:, k])
    out = torch.cat(heads, 1) + layer.bias
    return torch.where(out > 0, out, out.exp() - 1)


def gen(layer, h, graph, rows, carries):
    x = dropout(h, graph, rows, layer.dropout)
    message = torch.relu(x) + layer.eps
    linked = adjacency(graph).bool()
    score = (layer.t * message)[None].expand(len(h), -1, -1).masked_fill(~linked[:, :, None], -torch.inf)
    share = torch.nan_to_num(torch.softmax(score, dim=1))
    z = (share * message[None]).sum(1)
    if layer.message_scale is not None:
        z = (
            z
            / z.norm(dim=1, keepdim=True).clamp_min(1e-12)
            * x.norm(dim=1, keepdim=True)
            * layer.message_scale
        )
    hidden = layer_norm(linear(z + x, layer.inner), layer.norm)
    return linear(torch.relu(hidden), layer.outer)
