//! The crates that this library is made of, for programs that need more than its own types: all
//! fields of a structure on the disk, the checker's questions, mke2fs's command line. Their names
//! and types may change between versions.

pub use extant_check as check;
pub use extant_device as device;
pub use extant_engine as engine;
pub use extant_image as image;
pub use extant_journal as journal;
pub use extant_layout as layout;
#[cfg(feature = "sandbox")]
pub use extant_mount as mount;
pub use extant_nbd as nbd;
pub use extant_offline as offline;
pub use extant_ondisk as ondisk;
pub use extant_reader as reader;
pub use extant_runtime as runtime;
pub use extant_storage as storage;
