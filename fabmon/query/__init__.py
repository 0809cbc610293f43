"""Questions to a recording or a running watch, and their answers, for programs and assistants."""
