"""What will be sent, decided before the clock starts."""
