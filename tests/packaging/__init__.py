"""Tests of images, pages, examples, and the rules for the code as a whole."""
