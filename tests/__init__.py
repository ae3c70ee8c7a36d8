"""Tests, one folder per part. A package, so that two folders may have files of one name."""
