"""How good the findings are: random fabrics, their truth, and what was reported."""
