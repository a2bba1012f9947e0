//! Grids: one base recipe, variants of it and seeds, all from one start and with equal compute.

pub mod table;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sightdraft_core::files::read_text;
use sightdraft_core::{Error, Result};
use sightdraft_train::checkpoint::Best;
use sightdraft_train::held_out::HeldOut;

use crate::recipe::Recipe;

/// Keys that a grid sets itself.
const OWN_KEYS: [&str; 3] = ["seed", "start", "out"];

/// A grid file. Relative paths start at the working directory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The recipe that all variants share.
    pub base: PathBuf,
    /// The draft that every run goes on from; the base recipe's if not given.
    pub start: Option<String>,
    /// Where the runs go, one directory per variant and seed.
    pub out: PathBuf,
    /// Every variant runs once with each.
    pub seeds: Vec<u64>,
    /// Overrides of the base for all variants, as `train --set` takes them.
    #[serde(default)]
    pub set: Vec<String>,
    /// What is compared, in this order; the first is what the others are measured against.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
}

/// One column of the comparison.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in the table and on the disk.
    pub name: String,
    /// Its overrides, applied behind the grid's.
    #[serde(default)]
    pub set: Vec<String>,
}

/// One run that is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The variant's name.
    pub variant: String,
    /// Seed, start and directory filled in.
    pub recipe: Recipe,
}

/// What a finished run leaves in `result.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was run.
    pub cell: Cell,
    /// The best held-out measurement.
    pub best: Best,
    /// The one behind the last step.
    pub last: HeldOut,
    /// Sequence rows trained on.
    pub tokens: usize,
    /// Seconds of training steps.
    pub seconds: f64,
}

impl Grid {
    /// Reads a grid file.
    ///
    /// # Errors
    /// A missing file, bad TOML, an unknown key, no seeds or variants, a seed twice, names that are no directory names or not unique.
    pub fn open(path: &Path) -> Result<Self> {
        let text = read_text(path)?;
        let mend = "correct that key of the grid file";
        let wrong = |expected: &str, found: String| Error::file(path, expected, found, mend);
        let grid: Self = toml::from_str(&text).map_err(|e| wrong("a grid", e.message().replace('\n', " ")))?;
        if grid.seeds.is_empty() || grid.variants.is_empty() {
            return Err(wrong("at least one seed and one [[variant]]", "none".into()));
        }
        if let Some((_, seed)) = grid.seeds.iter().enumerate().find(|(i, seed)| grid.seeds[..*i].contains(seed)) {
            return Err(wrong("each seed once", format!("{seed} twice")));
        }
        for (i, variant) in grid.variants.iter().enumerate() {
            let plain = |c: char| c.is_alphanumeric() || " -_+.=,".contains(c);
            let name = &variant.name;
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(wrong("variant names of letters, digits, spaces and -_+.=,", format!("{name:?}")));
            }
            if grid.variants[..i].iter().any(|earlier| earlier.name == *name) {
                return Err(wrong("a name of its own for each variant", format!("{name:?} twice")));
            }
        }
        for text in grid.set.iter().chain(grid.variants.iter().flat_map(|variant| &variant.set)) {
            if OWN_KEYS.iter().any(|key| text.split('=').next().map(str::trim) == Some(key)) {
                return Err(wrong("overrides of the recipe, not of the grid's own seeds, start and out", text.clone()));
            }
        }
        Ok(grid)
    }

    /// All runs, seed by seed, so that an unfinished grid compares like with like.
    ///
    /// # Errors
    /// What [`Recipe::open`] finds wrong; variants that would not get equal compute.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let recipe = |variant: &Variant| Recipe::open(&self.base, &[&self.set[..], &variant.set].concat());
        let recipes = self.variants.iter().map(recipe).collect::<Result<Vec<_>>>()?;
        for (variant, recipe) in self.variants.iter().zip(&recipes) {
            if let Some((key, expected, found)) = unequal(&recipes[0], recipe) {
                let mend = "change it for all variants with the grid's own `set`";
                let key = format!("{key} of variant {:?}", variant.name);
                return Err(Error::invalid(key, format!("{expected}, as in the first"), found, mend));
            }
        }
        let cell = |seed: u64, variant: &Variant, recipe: &Recipe| {
            let mut recipe = recipe.clone();
            recipe.train.seed = seed;
            recipe.models.start = self.start.clone().or(recipe.models.start);
            recipe.models.out = self.out.join(&variant.name).join(seed.to_string());
            Cell { variant: variant.name.clone(), recipe }
        };
        let of_seed = |seed: &u64| {
            let seed = *seed;
            self.variants.iter().zip(&recipes).map(move |(variant, recipe)| cell(seed, variant, recipe))
        };
        Ok(self.seeds.iter().flat_map(of_seed).collect())
    }
}

/// The first key of data or schedule that differs: its name and both values. How often the data are seen, in what batches and
/// how often checkpoints are chosen from has to be the same for all; what an objective costs per row is its own.
fn unequal(first: &Recipe, other: &Recipe) -> Option<(&'static str, String, String)> {
    let keys = |recipe: &Recipe| {
        let (models, train) = (&recipe.models, &recipe.train);
        [
            ("target", models.target.clone()),
            ("data", models.data.display().to_string()),
            ("held_out", models.held_out.display().to_string()),
            ("epochs", train.epochs.to_string()),
            ("max_steps", train.max_steps.map_or("none".into(), |steps| steps.to_string())),
            ("batch_tokens", train.batch_tokens.to_string()),
            ("accumulate", train.accumulate.to_string()),
            ("max_length", train.max_length.to_string()),
            ("held_out_unroll", train.held_out_unroll().to_string()),
            ("evaluate_every", train.evaluate_every.to_string()),
        ]
    };
    let pairs = keys(first).into_iter().zip(keys(other));
    pairs.filter(|(a, b)| a != b).map(|((key, expected), (_, found))| (key, expected, found)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "target = \"t\"\ndata = \"d\"\nheld_out = \"h\"\nout = \"o\"\nepochs = 3\n";

    fn open(rest: &str) -> Result<Vec<Cell>> {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base.toml");
        std::fs::write(&base, BASE).unwrap();
        let path = dir.path().join("grid.toml");
        std::fs::write(&path, format!("base = {base:?}\nout = \"g\"\n{rest}")).unwrap();
        Grid::open(&path)?.cells()
    }

    #[test]
    fn seeds_come_first_and_overrides_reach_their_variant() {
        let rest = "seeds = [7, 8]\nstart = \"s\"\nset = [\"epochs=2\"]\n[[variant]]\nname = \"plain\"\n\
                    [[variant]]\nname = \"no arw\"\nset = [\"objective=vsd\", \"objective.mode=em\", \"objective.arw=false\"]\n";
        let cells = open(rest).unwrap();
        let names: Vec<_> = cells.iter().map(|cell| (cell.recipe.train.seed, cell.variant.as_str())).collect();
        assert_eq!(names, [(7, "plain"), (7, "no arw"), (8, "plain"), (8, "no arw")]);
        assert!(cells.iter().all(|cell| cell.recipe.train.epochs == 2));
        assert!(cells.iter().all(|cell| cell.recipe.models.start.as_deref() == Some("s")));
        assert_eq!(cells[3].recipe.models.out, Path::new("g/no arw/8"));
        assert_eq!(cells[1].recipe.train.objective.objective().name(), "vsd (em)");
    }

    #[test]
    fn what_would_not_be_a_comparison_is_refused() {
        for (rest, word) in [
            ("seeds = []\nvariant = [{name = \"a\"}]", "seed"),
            ("seeds = [1]\nvariant = []", "variant"),
            ("seeds = [7, 1, 7]\nvariant = [{name = \"a\"}]", "7 twice"),
            ("seeds = [1]\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"", "twice"),
            ("seeds = [1]\n[[variant]]\nname = \"../a\"", "../a"),
            ("seeds = [1]\n[[variant]]\nname = \"a\"\nset = [\"seed=3\"]", "seed=3"),
            ("seeds = [1]\n[[variant]]\nname = \"a\"\nextra = 1", "extra"),
            ("seeds = [1]\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nset = [\"epochs=9\"]", "epochs"),
        ] {
            let message = open(rest).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
