"""How a probe is reached: ssh, any command, or this machine."""
