"""The operator: what turns an AggregationTopology into pods."""
