"""fabmon: a live terminal view of a GPU cluster's fabric."""

from collectors import __version__ as __version__
