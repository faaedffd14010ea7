"""From a recorded run to a verdict. Pure: no clock, network, file or process."""
