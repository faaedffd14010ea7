"""Workload in, plan out. Pure: no clock, network, environment or process."""
