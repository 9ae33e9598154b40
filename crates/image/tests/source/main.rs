//! Sources of a build, compared with what the system and other programs say of them.

mod archive;
mod damage;
mod directory;
mod images;
mod layout;
mod overlay;
mod shown;
mod written;
