"""Choices that follow from measured costs."""

from gnnpar.plan.balance import balance_branches, balance_stages
from gnnpar.plan.profile import plan_stages, profile_layers, stage_faults

__all__ = ["balance_branches", "balance_stages", "plan_stages", "profile_layers", "stage_faults"]
