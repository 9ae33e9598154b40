//! Maps of indirect blocks.
