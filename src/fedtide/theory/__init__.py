"""Theorem 1 evaluated: its constants, its right-hand side, its lemmas and what the simulator measures, side by side.

problem = options.problem(options.Options())     a strongly convex task in a simulated system
constants.of(problem)                            mu, L, C_1, C_2, zeta, r_min, a_lim, with how each was obtained
bound.PAPER, bound.TIGHT, bound.SHARP            three readings of the bound, from the paper's to ours
measure.squared_errors(problem, alpha, seeds)    E||theta(t) - theta*||^2 of the simulated system itself
"""
