"""From batches to cells: where events are cut, and what each piece comes to. The hot path.

Nothing here knows a watermark, a window result or another node.
"""
