"""Tools for people who work on kvadvise: they write documents, never the package."""
