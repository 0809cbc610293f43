"""The cabling of the fabric: plans, reports of nodes, and what follows from them."""
