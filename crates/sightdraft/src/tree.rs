//! `--tree adaptive` or `--tree total/depth/top_k`.

use burn::tensor::Device;
use clap::Args;
use sightdraft_core::Error;
use sightdraft_decode::TreeShape;

/// EAGLE-3's tree: verifying 60 rows costs a GPU little more than one.
const ON_GPU: TreeShape = TreeShape { total: 60, depth: 5, top_k: 10 };

/// On a CPU every row costs.
const ON_CPU: TreeShape = TreeShape { total: 16, depth: 4, top_k: 4 };

/// What no hardware of today would verify or draft in a sensible time; a slip of the keyboard would take all memory.
const LARGEST: TreeShape = TreeShape { total: 2048, depth: 64, top_k: 128 };

/// The draft tree.
#[derive(Debug, Args)]
pub struct TreeArguments {
    /// Draft tree as nodes/depth/children per node, or `adaptive`: whatever emits most tokens per second on this machine. `eval`
    /// then measures a fixed tree (60/5/10 on a GPU, 16/4/4 on the CPU) beside it.
    #[arg(long, value_name = "N/D/K", value_parser = parse, default_value = ADAPTIVE)]
    tree: TreeOption,
}

/// What `--tree` says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TreeOption {
    Adaptive,
    Fixed(TreeShape),
}

const ADAPTIVE: &str = "adaptive";

impl TreeArguments {
    /// The tree asked for, or where it is adaptive the fixed one that suits `device`.
    pub fn shape(&self, device: &Device) -> TreeShape {
        match self.tree {
            TreeOption::Fixed(shape) => shape,
            TreeOption::Adaptive if is_cpu(device) => ON_CPU,
            TreeOption::Adaptive => ON_GPU,
        }
    }

    /// Whether trees follow their cost.
    pub fn is_adaptive(&self) -> bool {
        self.tree == TreeOption::Adaptive
    }
}

#[cfg(feature = "flex")]
fn is_cpu(device: &Device) -> bool {
    *device == Device::flex()
}

#[cfg(not(feature = "flex"))]
fn is_cpu(_device: &Device) -> bool {
    false
}

fn parse(text: &str) -> Result<TreeOption, Error> {
    if text == ADAPTIVE {
        return Ok(TreeOption::Adaptive);
    }
    let numbers: Option<Vec<usize>> = text.split('/').map(|part| part.parse().ok()).collect();
    let fits = |n: &[usize]| {
        (1..=LARGEST.total).contains(&n[0]) && n[1] <= LARGEST.depth && (1..=LARGEST.top_k).contains(&n[2])
    };
    match numbers.as_deref() {
        Some(n @ &[total, depth, top_k]) if fits(n) => Ok(TreeOption::Fixed(TreeShape { total, depth, top_k })),
        _ => Err(Error::invalid(
            "--tree",
            "adaptive, or nodes/depth/children, from 1/0/1 to 2048/64/128",
            text,
            "write for example --tree 16/4/4",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_a_tree_and_nothing_else_is() {
        let shape = TreeShape { total: 16, depth: 4, top_k: 3 };
        assert_eq!(parse("16/4/3").unwrap(), TreeOption::Fixed(shape));
        assert_eq!(parse("adaptive").unwrap(), TreeOption::Adaptive);
        for bad in ["16", "16/4", "16/4/0", "0/4/3", "a/b/c", "1/2/3/4", "", "16/4/999", "16/99/4", "9999/4/4"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
