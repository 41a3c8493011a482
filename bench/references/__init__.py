"""Hand-written reference loops: the minimum cost of a queue on each store."""
