"""Processes and messages: the only package that uses torch.distributed."""

from gnnpar.dist.context import Context
from gnnpar.dist.mesh import Mesh
from gnnpar.dist.transport import Message, Transport

__all__ = ["Context", "Mesh", "Message", "Transport"]
