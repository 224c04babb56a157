"""Many runs: sweeps over choices of keys, and tables and plots of what runs have found."""
