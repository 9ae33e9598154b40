//! Sources of a build, compared with the system's and other programs' view of them.

mod archive;
mod damage;
mod directory;
mod images;
mod layout;
mod overlay;
mod shown;
mod written;
