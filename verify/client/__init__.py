"""Sends a schedule and stamps what comes back."""
