"""From partials to windows: cells merge by slice, by gap, by mark and by rank, and windows close.

The same code runs on every node; only the root asks it for windows. Nothing here knows a query.
"""
