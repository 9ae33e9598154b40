//! Errors of files of the host, without their numbers.

/// The text of an error of a file of the host.
pub(super) fn host_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
