"""Query-groups: queries that share one pass over the events, and the state of that pass.

A group reads rows, keeps cells, gives them away as its part of a partial, takes parts from other nodes
and, at the root, closes windows. Which of these a node uses is the node's business.
"""
