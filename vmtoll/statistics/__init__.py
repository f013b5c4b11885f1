"""Estimators and tests. They know numbers alone: no trial, no run, no machine."""
