"""A partition as its leader keeps it: the log, the state of producers, the checks of batches."""
