"""Printers: a plan as it is published (kvadvise.plan/1) in, text out. They never compute and never decide."""
