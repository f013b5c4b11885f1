"""Tests in the embedded lab: they need root."""
