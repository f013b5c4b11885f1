"""Estimators and tests. They take only numbers: no trial, no run, no machine."""
