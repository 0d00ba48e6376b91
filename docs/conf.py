"""The documentation site: Sphinx over the same Markdown that is read in the repository (`make docs`)."""

import sys
from pathlib import Path

import fedtide

sys.path.insert(0, str(Path(__file__).parent / "site"))


project = "fedtide"
copyright = "The fedtide authors"
release = fedtide.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "generated"]
exclude_patterns = ["site", "results", "_build"]
nitpicky = False

html_math_renderer = "mathml"  # by generated.py: no script, and nothing from another server
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = "fedtide"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_sourcelink_suffix = ""  # notebooks are downloaded from there
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00588a", "color-brand-content": "#00588a"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_heading_slug_func = "generated.anchor"
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
