"""Processes and messages: the only package that uses torch.distributed."""

from gnnpar.dist.context import Context
from gnnpar.dist.transport import Message, Transport

__all__ = ["Context", "Message", "Transport"]
