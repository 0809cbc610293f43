"""What witnesses say of a job, as observations, and what the network did at that time."""
