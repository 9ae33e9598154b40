//! The input of `extant build`: directories, tar archives and OCI layouts, laid over each other into one [`Tree`].

mod acl;
mod builder;
mod error;
mod owner;
mod store;
mod tree;
mod xattr;

pub use error::{EntryName, Flaw, SourceError};
pub use owner::{OwnerMap, Owners, parse_owner};
pub use store::Content;
pub use tree::{DeviceNumber, Dirent, Mtime, Node, NodeId, NodeKind, Segment, StoreId, Tree};
pub use xattr::{ACL_ACCESS, ACL_DEFAULT, Xattr, XattrSetId, Xattrs};
