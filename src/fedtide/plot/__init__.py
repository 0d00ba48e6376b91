"""Figures. Matplotlib is imported when a figure is asked for, not before."""
