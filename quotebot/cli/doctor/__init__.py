"""Diagnosis of an installation: reports each problem with its reason and its remedy; it changes nothing."""
