"""Brackets around the figures of the league: what an oracle's schedule, an ideal codec and a radio without limits would reach."""
