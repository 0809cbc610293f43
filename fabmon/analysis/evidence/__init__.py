"""Measurements that several detectors share."""
