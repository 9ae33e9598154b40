//! Copies as qcow2 files, written by imago.

use std::fs::File;
use std::io;

use imago::file::File as ImageFile;
use imago::qcow2::{Qcow2, Qcow2CreateBuilder};
use imago::{DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder};

use super::{Bytes, CloneError, CloneSource};

/// Bytes of a cluster of the file, where a block of the volume is not larger.
const CLUSTER: usize = 4096;

/// Writes a qcow2 file (version 3, without compression): blocks of zeros and those that are not
/// copied take no room.
///
/// # Errors
/// The device or the file failed.
pub fn clone_to_qcow2(source: CloneSource<'_>, file: File) -> Result<(), CloneError> {
    let builder = Qcow2CreateBuilder::<ImageFile>::new(ImageFile::try_from(file)?)
        .size(source.size)
        .cluster_size(CLUSTER.max(source.block_size as usize));
    let open = |file| Ok(Qcow2::<ImageFile>::builder(file).backing(None).write(true));
    let image = FormatAccess::new(builder.create_open(DenyImplicitOpenGate::default(), open)?);
    let result = source.for_each(&mut |at, bytes| match bytes {
        Bytes::Data(bytes) => Ok(write(&image, bytes, at)?),
        Bytes::Zeros(_) => Ok(()),
    });
    result?;
    Ok(image.flush()?)
}

fn write(image: &FormatAccess<ImageFile>, bytes: &[u8], at: u64) -> io::Result<()> {
    image.write(bytes, at)
}
