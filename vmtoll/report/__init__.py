"""What people read: pages, charts, tables and sentences."""
