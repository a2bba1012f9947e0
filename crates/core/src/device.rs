//! Choosing the device at run time.

use burn::tensor::Device;

use crate::Result;

/// `auto`, `cpu`, `cuda[:i]`, `vulkan[:i]`, `metal`, `wgpu[:i]`, `rocm[:i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice(pub String);

/// The device that `choice` names, and the sentence that says what was taken. `auto` takes a real GPU if this build has a
/// backend for one and the machine has one (never a software rasteriser), else the CPU.
pub fn pick(_choice: &DeviceChoice) -> Result<(Device, String)> {
    todo!()
}
