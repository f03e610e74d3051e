"""Where events are cut: by the edges of windows, by marks, by predicates.

Nothing here knows a watermark, a window result or another node.
"""
