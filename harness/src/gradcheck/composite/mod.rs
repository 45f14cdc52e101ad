//! Pieces of models that are more than one op: their operands, values in float64, and the engine's own
//! composition.

mod gated_delta;
mod lora;
mod rectified;
mod routed;

use mlx_parity_tensor::{Dtype, HostTensor};

use super::{Form, GradError};
use crate::ops::Source;

/// A piece of a model.
pub trait Composite: Sync {
    /// Its operands.
    ///
    /// # Errors
    /// [`GradError`] for a dtype that it does not take.
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError>;

    /// Its outputs.
    fn outputs(&self, dtype: Dtype) -> Vec<Form>;

    /// The outputs in float64, one behind the other.
    ///
    /// # Errors
    /// [`GradError`] where the operands cannot be answered.
    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError>;

    /// The engine's composition.
    ///
    /// # Errors
    /// What the engine says.
    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError>;
}

/// Every composite by its name.
pub const COMPOSITES: &[(&str, &dyn Composite)] = &[
    ("lora", &lora::Lora),
    ("gated_delta", &gated_delta::GatedDelta),
    ("moe_routing", &routed::Routed),
    ("relu", &rectified::Relu),
    ("clip", &rectified::Clip),
];

/// A composite by its name.
pub fn composite(name: &str) -> Option<&'static dyn Composite> {
    COMPOSITES.iter().find(|(known, _)| *known == name).map(|(_, composite)| *composite)
}
