"""Theorem 1 evaluated: its constants, its right-hand side, its lemmas and what the simulator measures, side by side.

problem = make_problem(options.make())            a strongly convex task in a simulated system
c = constants.of(problem)                         mu, L, C_1, C_2, zeta, r_min, a_lim
bound.curve(bound.PAPER, c, alpha, problem.system.ticks)    the right-hand side over t; TIGHT and SHARP beside it
measure.squared_errors(problem, alpha, num_seeds)           E||theta(t) - theta*||^2 of the simulated system itself
command.run(words, out, console)                  all of it: `fedtide theory`

docs/theory.md states every quantity with its equation.
"""
