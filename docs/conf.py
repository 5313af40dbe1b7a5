"""Settings of the documentation site: `make docs`."""

import inspect
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # gallery_order

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the fits of the gallery are small
from ncprob import __version__  # noqa: E402

project = "ncprob"
author = "The ncprob developers"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.md5"]
templates_path = ["_templates"]

# Pages are read on GitHub too: plain Markdown, with anchors for headings.
myst_heading_anchors = 3


autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc shows types where they say something
default_role = "code"  # `name` in docstrings is code
numpydoc_show_class_members = False  # the template of classes lists them

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "within_subsection_order": "gallery_order.ReadmeOrder",
    "thumbnail_size": (560, 230),  # figures are wide
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 10**6,  # times of this machine say nothing to readers
    "write_computation_times": False,
    "capture_repr": (),
    "abort_on_example_error": True,  # an example that misses the truth is an error of the build
}

html_theme = "pydata_sphinx_theme"
html_title = "ncprob"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
}
html_sidebars = {"index": []}


def escaped(line):
    """|F − G| is an absolute value and `rank_` a name, neither is markup of sphinx; code stays as it is."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"(`+[^`]*`+)", line)
    return "".join(p if p.startswith("`") else re.sub(r"(?<=\w)_(?=[,)])|\|", r"\\\g<0>", p) for p in parts)


def repair_docstring(app, what, name, obj, options, lines):
    """Escape what is not markup, and give a docstring the references it cites: they stand once, in its module."""
    lines[:] = [escaped(line) for line in lines]
    text = "\n".join(lines)
    cited = {number for number in re.findall(r"\[(\d+)\]_", text) if f".. [{number}]" not in text}
    module = sys.modules.get(getattr(obj, "__module__", None) or "")
    while cited and module is not None:
        entries = re.findall(r"^\.\. \[(\d+)\] (.*(?:\n   .*)*)", inspect.getdoc(module) or "", flags=re.M)
        known = [(number, entry) for number, entry in entries if number in cited]
        if known:
            lines += ["", "References", "----------"]
            for number, entry in known:
                lines += f".. [{number}] {entry}".splitlines()
            return
        module = sys.modules.get(module.__name__.rpartition(".")[0])  # those of a package serve its modules


def setup(app):
    """Hook in before numpydoc, which then numbers the references."""
    app.connect("autodoc-process-docstring", repair_docstring, priority=400)
