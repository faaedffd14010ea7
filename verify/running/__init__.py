"""Plays a schedule phase by phase and writes down what happens."""
