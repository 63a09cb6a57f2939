"""How the documentation is built: offline, no external font, script or inventory."""

import re
from importlib import metadata

project = "countveil"
author = "the countveil authors"
release = metadata.version("countveil")
version = release
language = "en"
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write names in single backticks
nitpicky = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name
    for name in (
        *("Array", "FloatArray", "IntArray", "Words16", "Words64"),
        *("Exact", "Cost", "Neighbors", "Every", "Ties", "Progress"),
    )
}
python_maximum_signature_line_length = 88

html_theme = "furo"
html_theme_options = {
    name: {"code-font-size": "var(--font-size--small--2)"}  # room for long lines
    for name in ("light_css_variables", "dark_css_variables")
}
html_title = f"countveil {release}"
html_show_sourcelink = False
html_copy_source = False


def _as_plain_text(app, what, name, obj, options, lines):
    """Escape what reStructuredText would read as markup; docstrings are plain text with `names`."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        for even in range(0, len(parts), 2):
            parts[even] = parts[even].replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*")
        lines[number] = "`".join(parts)


def _with_short_aliases(app, what, name, obj, options, signature, returns):
    """Show a type alias by its name where autodoc shows how it stands for it."""

    def short(text):
        return text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)

    return short(signature), short(returns)


def setup(app):
    """Connect the above."""
    app.connect("autodoc-process-docstring", _as_plain_text)
    app.connect("autodoc-process-signature", _with_short_aliases)
