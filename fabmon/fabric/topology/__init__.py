"""How the fabric is cabled: what the person gave, what the nodes tell, and what follows from it."""
