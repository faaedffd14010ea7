"""Looks at a server while it is under load, and at the machine it runs on where that is this one."""
