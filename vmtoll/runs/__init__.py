"""A run's folder: records and other files, appended durably and found again."""
