"""`python -m kvadvise`."""

from kvadvise.main import main

main()
