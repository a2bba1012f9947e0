//! `sightdraft devices`.

use clap::Args;
use serde::Serialize;
use sightdraft_core::Result;
use sightdraft_core::device::list;

use crate::output::{print_json, say_line};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Devices {
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    /// What `--device` takes.
    name: String,
    title: String,
    /// A CPU that plays a GPU.
    software: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let devices: Vec<Device> =
        list().into_iter().map(|d| Device { name: d.name, title: d.title, software: d.software }).collect();
    if arguments.json {
        return print_json(&Devices { devices });
    }
    for device in &devices {
        let note = if device.software { " (software, taken only by name)" } else { "" };
        say_line(&format!("{:<10} {}{note}", device.name, device.title))?;
    }
    Ok(())
}
