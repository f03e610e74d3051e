"""Events from files and pipes: CSV, JSON lines, Arrow and Parquet, as columns, thousands at a time.

`open_input` gives a reader; iterating it gives `Events`. A pipe is read as it comes, not to its end.
"""

from headwater_source.readers.inputs import FORMATS, TIME_UNIT_HELP, Reader, columns_of, format_of, open_input
from headwater_source.readers.records import BadRecord

__all__ = ["FORMATS", "TIME_UNIT_HELP", "BadRecord", "Reader", "columns_of", "format_of", "open_input"]
