"""Schedule families: one file each, a pure function of counts to a Schedule."""
