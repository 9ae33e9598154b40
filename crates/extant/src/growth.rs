//! How a volume in use grows: the plan of `resize`, for the engine.

use crate::FileSystem;
use extant_device::Device;
use extant_engine::{GrowthError, GrowthPlan, GrowthPlanner};
use extant_image::resize::{Growth, Resize, ResizeError, size_for};
use extant_runtime::env::Env;
use std::sync::Arc;

/// Plans the growth of a volume in use as `resize` grows one that is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResizePlanner;

fn refused(error: ResizeError) -> GrowthError {
    GrowthError::Refused { errno: error.errno(), what: error.to_string() }
}

fn plan_of(growth: Growth) -> GrowthPlan {
    let Growth { blocks, changes, free_clusters, free_inodes, freed } = growth;
    GrowthPlan { blocks, changes, free_clusters, free_inodes, freed }
}

impl GrowthPlanner for ResizePlanner {
    fn size_for(&self, device: &Arc<dyn Device>, blocks: u64) -> Result<u64, GrowthError> {
        size_for(&**device, blocks).map_err(refused)
    }

    fn plan(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        blocks: u64,
    ) -> Result<GrowthPlan, GrowthError> {
        Resize::new(device, env).plan_growth(blocks).map(plan_of).map_err(refused)
    }

    fn plan_fewer_reserved(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        count: u64,
    ) -> Result<Option<GrowthPlan>, GrowthError> {
        let planned = Resize::new(device, env).plan_fewer_reserved(count).map_err(refused)?;
        Ok(planned.map(plan_of))
    }

    fn write_backups(&self, device: &Arc<dyn Device>, env: &Env) -> Result<(), GrowthError> {
        Resize::new(device, env).write_backups().map_err(refused)
    }
}

impl FileSystem {
    /// Grows the file system to a size in bytes while it is in use, and its device with it where
    /// this is too short and a file. Returns the size that it has then.
    ///
    /// # Errors
    /// It is open for reading only, or would get smaller; a size that the volume or its device
    /// cannot have; the device failed.
    pub fn grow(&self, bytes: u64) -> Result<u64, GrowthError> {
        let engine = self.volume().engine()?;
        let block_size = u64::from(engine.geometry().block_size);
        Ok(engine.grow(bytes / block_size, &ResizePlanner)? * block_size)
    }
}
