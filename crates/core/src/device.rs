//! Choosing the device at run time.

use std::str::FromStr;

use burn::tensor::Device;

use crate::{Error, Result};

/// `auto`, `cpu`, `cuda[:i]`, `vulkan[:i]`, `metal`, `wgpu[:i]`, `rocm[:i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice(pub String);

impl FromStr for DeviceChoice {
    type Err = Error;

    /// Checks the spelling; whether this build and this machine have the device is [`pick`]'s matter.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).map(|_| Self(text.to_owned()))
    }
}

/// A way to reach a processor, in the order in which `auto` tries them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Cuda,
    Rocm,
    Metal,
    Vulkan,
    Wgpu,
    Cpu,
}

impl Backend {
    const ALL: [Self; 6] = [Self::Cuda, Self::Rocm, Self::Metal, Self::Vulkan, Self::Wgpu, Self::Cpu];

    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::Metal => "metal",
            Self::Vulkan => "vulkan",
            Self::Wgpu => "wgpu",
            Self::Cpu => "cpu",
        }
    }

    /// The cargo feature that compiles it in.
    fn feature(self) -> &'static str {
        if self == Self::Cpu { "flex" } else { self.name() }
    }

    fn compiled(self) -> bool {
        match self {
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Rocm => cfg!(feature = "rocm"),
            Self::Metal => cfg!(feature = "metal"),
            Self::Vulkan => cfg!(feature = "vulkan"),
            Self::Wgpu => cfg!(feature = "wgpu"),
            Self::Cpu => cfg!(feature = "flex"),
        }
    }

    /// The devices that it reaches on this machine, real GPUs before software.
    fn devices(self) -> Vec<Found> {
        let mut found: Vec<Found> = self.enumerate().into_iter().map(|device| Found::new(self, device)).collect();
        found.sort_by_key(|found| found.software);
        found
    }

    fn enumerate(self) -> Vec<Device> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec(),
            #[cfg(feature = "rocm")]
            Self::Rocm => Device::enumerate(burn::tensor::DeviceType::Rocm).into_vec(),
            #[cfg(feature = "metal")]
            Self::Metal => Device::enumerate(burn::tensor::DeviceType::Metal).into_vec(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec(),
            #[cfg(feature = "flex")]
            Self::Cpu => vec![Device::flex()],
            // Backends that this build lacks.
            #[allow(unreachable_patterns)]
            _ => Vec::new(),
        }
    }
}

/// A device of this machine, and whether it is a CPU that plays a GPU.
struct Found {
    device: Device,
    software: bool,
}

impl Found {
    fn new(backend: Backend, device: Device) -> Self {
        // wgpu lists llvmpipe, lavapipe, SwiftShader and WARP as adapters of kind `Cpu`. The kind is read off the handle,
        // because opening such an adapter just to ask its name can crash an old driver.
        let software = backend != Backend::Cpu && format!("{device:?}").contains("Cpu");
        Self { device, software }
    }

    /// What the processor is called.
    fn title(&self, backend: Backend) -> String {
        if backend == Backend::Cpu {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            return format!("the processor, {threads} threads (flex)");
        }
        if self.software { "a software rasteriser on the processor".to_owned() } else { name(&self.device) }
    }
}

/// The name that a GPU gives itself; opens it.
#[cfg(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "vulkan", feature = "metal"))]
fn name(device: &Device) -> String {
    device.identity().map_or_else(|| format!("{device:?}"), |identity| identity.name)
}

#[cfg(not(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "vulkan", feature = "metal")))]
fn name(device: &Device) -> String {
    format!("{device:?}")
}

/// A line of `sightdraft devices`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What to write behind `--device`.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Whether it is a CPU that plays a GPU; `auto` never takes it.
    pub software: bool,
}

/// Every device that this build reaches on this machine, in `auto`'s order of preference.
pub fn list() -> Vec<DeviceInfo> {
    let mut all = Vec::new();
    for backend in Backend::ALL {
        for (i, found) in backend.devices().iter().enumerate() {
            let name = if backend == Backend::Cpu { "cpu".to_owned() } else { format!("{}:{i}", backend.name()) };
            all.push(DeviceInfo { name, title: found.title(backend), software: found.software });
        }
    }
    all
}

/// The device that `choice` names, and the sentence that says what was taken. `auto` takes a real GPU if this build has a
/// backend for one and the machine has one (never a software rasteriser), else the CPU.
///
/// # Errors
/// A misspelt choice, a backend that this build lacks (the message names the cargo feature), or a device that is not there.
pub fn pick(choice: &DeviceChoice) -> Result<(Device, String)> {
    let Some((backend, index)) = parse(&choice.0)? else { return automatic() };
    if !backend.compiled() {
        return Err(Error::invalid(
            format!("device `{}`", choice.0),
            format!("a backend that this build has ({})", compiled_names()),
            format!("`{}`, which was left out", backend.name()),
            format!("build with `--features {}`", backend.feature()),
        ));
    }
    let mut devices = backend.devices();
    if index >= devices.len() {
        return Err(Error::invalid(
            format!("device `{}`", choice.0),
            format!("one of the {} devices that {} reaches here", devices.len(), backend.name()),
            format!("number {index}"),
            "run `sightdraft devices` to see them, or use `--device cpu`",
        ));
    }
    Ok(taken(backend, index, devices.swap_remove(index)))
}

fn automatic() -> Result<(Device, String)> {
    for backend in Backend::ALL {
        // Real GPUs come first in the list, so the first device decides.
        if let Some(found) =
            backend.devices().into_iter().next().filter(|found| backend == Backend::Cpu || !found.software)
        {
            return Ok(taken(backend, 0, found));
        }
    }
    Err(Error::invalid(
        "device `auto`",
        "a GPU, or a build with the CPU backend",
        "neither",
        "build with `--features flex`",
    ))
}

fn taken(backend: Backend, index: usize, found: Found) -> (Device, String) {
    let number = if backend == Backend::Cpu { String::new() } else { format!(":{index}") };
    let sentence = format!("{}{number}: {}", backend.name(), found.title(backend));
    (found.device, sentence)
}

fn compiled_names() -> String {
    let names: Vec<&str> = Backend::ALL.into_iter().filter(|b| b.compiled()).map(Backend::name).collect();
    names.join(", ")
}

/// Backend and device number; `None` for `auto`.
fn parse(text: &str) -> Result<Option<(Backend, usize)>> {
    if text == "auto" {
        return Ok(None);
    }
    let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
    let backend = Backend::ALL.into_iter().find(|b| b.name() == name);
    let index = number.map_or(Some(0), |number| number.parse().ok());
    match (backend, index) {
        (Some(Backend::Cpu), _) if number.is_some() => {}
        (Some(backend), Some(index)) => return Ok(Some((backend, index))),
        _ => {}
    }
    Err(Error::invalid(
        "--device",
        "auto, cpu, cuda[:i], vulkan[:i], metal[:i], wgpu[:i] or rocm[:i]",
        format!("`{text}`"),
        "correct the spelling",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(choice: &str) -> String {
        pick(&DeviceChoice(choice.into())).err().unwrap().to_string()
    }

    #[test]
    fn spelling() {
        assert_eq!(parse("auto").unwrap(), None);
        assert_eq!(parse("cuda:3").unwrap(), Some((Backend::Cuda, 3)));
        assert_eq!(parse("metal").unwrap(), Some((Backend::Metal, 0)));
        for wrong in ["gpu", "cuda:", "cuda:x", "cpu:0", "", "CPU"] {
            assert!(DeviceChoice::from_str(wrong).unwrap_err().to_string().contains("auto, cpu"), "{wrong}");
        }
    }

    #[test]
    #[cfg(feature = "flex")]
    fn the_cpu_is_always_there() {
        let (_, sentence) = pick(&DeviceChoice("cpu".into())).unwrap();
        assert!(sentence.starts_with("cpu: "), "{sentence}");
        assert!(list().iter().any(|info| info.name == "cpu" && !info.software));
        assert!(pick(&DeviceChoice("auto".into())).is_ok());
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_backend_left_out_names_its_feature() {
        assert!(refused("cuda").contains("--features cuda"));
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(refused("cuda:99").contains("number 99"));
    }
}
