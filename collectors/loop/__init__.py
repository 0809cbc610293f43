"""The probe: its loop, its threads, and requests from the console."""
