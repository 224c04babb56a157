"""Write docs/configuration.md from the schema. Run it by `make docs`."""

from pathlib import Path

from gnnpar.config.docs import configuration_page

Path(__file__).parent.parent.joinpath("docs", "configuration.md").write_text(
    configuration_page(), encoding="utf-8"
)
