//! The schemes that names of images may have.

use std::sync::LazyLock;

use extant_storage::Schemes;

static SCHEMES: LazyLock<Schemes> = LazyLock::new(built_in);

fn built_in() -> Schemes {
    let mut schemes = Schemes::default();
    #[cfg(feature = "sim")]
    schemes.add(std::sync::Arc::new(crate::simulated::Model));
    #[cfg(not(feature = "sim"))]
    schemes.leave_out("model:", "sim");
    schemes
}

/// The schemes of this build: layers on files, and with the feature `sim` simulated drives. Every
/// name of an image that the library opens may have them.
pub fn schemes() -> &'static Schemes {
    &SCHEMES
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_of_a_feature_that_is_left_out_is_refused_by_the_features_name() {
        let name = std::ffi::OsStr::new("model:nvme:d.img");
        let read = extant_storage::DeviceUrl::parse(name, schemes(), extant_storage::stat_host);
        let error = read.expect_err("no simulated drives").to_string();
        assert_eq!(error, "model: not included in this build of extant (cargo feature sim)");
    }
}
