"""Theorem 1 evaluated: its constants, its right-hand side and what the simulator measures, side by side.

problem = make_problem(make_options())                      a strongly convex task in a simulated system
c = bound.bound_of(problem)                                 mu, L, C_1, C_2, zeta, r_min, a_lim
bound_curve(PAPER_BOUND, c, alpha, problem.system.ticks)    the right-hand side over t; tight and sharp beside it
squared_errors(problem, alpha, num_seeds)                   E||theta(t) - theta*||^2 of the simulated system itself
run_theory(words, out, console)                             all of it: `fedtide theory`

docs/theory.md states every quantity with its equation.
"""
