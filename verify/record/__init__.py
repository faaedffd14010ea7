"""What a run leaves: rows, snapshots, marks; what is judged, stored and judged again."""
