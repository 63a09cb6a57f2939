"""How the documentation is built: offline, no external font, script or inventory."""

from importlib import metadata

project = "countveil"
author = "the countveil authors"
release = metadata.version("countveil")
version = release
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write names in single backticks
nitpicky = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"countveil {release}"
html_show_sourcelink = False
html_copy_source = False
