"""sFlow version 5: datagrams that switches send, with sampled packets and interface counters."""
