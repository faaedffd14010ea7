"""A verdict as files. Printers print; nothing is computed or decided here."""
