//! Records of a directory block.
