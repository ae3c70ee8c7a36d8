"""What ships beside the programs: images, pages, examples, and the rules about the code as a
whole."""
