"""Rules: what is wrong with a configuration, why, and the one change that helps."""
