"""Jobs of the scheduler: what they are, how `squeue` prints them, on which nodes they run."""
