"""Pages, charts, tables and sentences for readers."""
