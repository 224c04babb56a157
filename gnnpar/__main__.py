"""`python -m gnnpar`, also under torchrun and srun."""

from gnnpar.cli.main import entry

entry()
