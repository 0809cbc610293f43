"""The roles of ports: rail, storage, frontend, management, and why."""
