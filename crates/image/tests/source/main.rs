//! Sources of a build, compared with what the system and other programs say of them.

mod archive;
mod directory;
mod shown;
