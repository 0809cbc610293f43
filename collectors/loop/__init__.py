"""The probe's loop: aligned ticks, deadlines, the console's requests, bursts and traces."""
