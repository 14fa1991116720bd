"""Reproduction of the papers' tables: their rows as data, trainings that resume, statistics and records."""
