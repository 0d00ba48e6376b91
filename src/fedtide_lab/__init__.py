"""The laboratory: the paper's claims, other worlds, a league of methods and the theorem, studied with fedtide."""
