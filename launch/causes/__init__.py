"""Why a start fails, one module per kind of cause; each holds its rules as a table."""
