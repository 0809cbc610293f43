"""The rhythm of training: iterations, seen in nothing but byte counters."""
