"""From a fabric and its last minutes to findings. Pure: nothing here does I/O, but
rule_texts, which reads a packaged page at import.
"""
