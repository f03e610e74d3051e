"""The root as a Spark job: log in, a pure function in Spark, log out; and batch jobs over archived events.

What the tree sees (log, messages, decisions) and what a user sees (outbox, sinks) is that of
`headwater_root`; here are the merging in Spark's executors and what belongs to Spark itself. Nothing here
decides anything that shapes a result: results are a function of the log.
"""
