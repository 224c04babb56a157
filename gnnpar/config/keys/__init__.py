"""The sections of a configuration, a few a file; `gnnpar.config.schema` puts them together."""
