"""From a fabric and its last minutes to findings. Pure: nothing here does I/O."""
