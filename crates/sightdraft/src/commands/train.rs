//! `sightdraft train`: a recipe, from data to a draft.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use clap::Args;
use sightdraft_core::{Error, Result, hub};
use sightdraft_datasets::{Conversation, training};
use sightdraft_draft::{Draft, DraftConfig, DraftModel, VocabMap};
use sightdraft_target::{Llama, LlamaConfig, ServedTarget};
use sightdraft_train::peak::peak_memory;
use sightdraft_train::plan::gib;
use sightdraft_train::trainer::best_dir;
use sightdraft_train::{Example, Plan, Setup, Size, TrainConfig, Trainer, plan};

use crate::arguments::DeviceArguments;
use crate::builtin;
use crate::commands::inspect::geometry::Geometry;
use crate::lengths::sizes;
use crate::output::say_line;
use crate::recipe::{Models, Recipe, features};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The recipe.
    #[arg(long)]
    config: PathBuf,
    /// Change a key of the recipe; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Go on from the last checkpoint.
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Print steps, tokens, memory and disk, and stop. Needs config files alone.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run, plan for N conversations of L tokens where the data are not there yet.
    #[arg(long, value_name = "NxL", value_parser = parse_size, requires = "dry_run")]
    assume: Option<(usize, usize)>,
    #[command(flatten)]
    device: DeviceArguments,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let recipe = Recipe::open(&arguments.config, &arguments.overrides)?;
    if arguments.dry_run {
        return print_plan(&recipe, arguments.assume, arguments.device.dtype());
    }
    let (device, taken) = arguments.device.pick()?;
    eprintln!("{taken}");
    let conversations = Conversations::read(&recipe)?;
    let dir = builtin::resolve(&recipe.models.target)?;
    let target = ServedTarget::open(&dir, arguments.device.dtype(), &device)?;
    let Examples { training: examples, held_out } = conversations.encode(&recipe, &target)?;
    let sizes: Vec<Size> = examples.iter().map(Example::size).collect();
    let setup = Setup {
        config: recipe.train.clone(),
        target: target.model.as_ref(),
        target_name: format!("{} as {:?}", recipe.models.target, arguments.device.dtype()),
        eos: target.eos.clone(),
        held_out,
        features: features(recipe.models.out.parent().unwrap_or(Path::new("")), &dir)?,
        out: recipe.models.out.clone(),
        examples,
    };
    let mut trainer = if arguments.resume {
        Trainer::resume(setup)?
    } else {
        let draft = first_draft(&recipe, &setup.examples, target.model.llama(), &device)?;
        Trainer::start(setup, draft)?
    };
    if let Some(missing) = trainer.missing_features() {
        eprintln!("{missing}");
    }
    let draft = trainer.draft().published().config().clone();
    let planned = whole_plan(&recipe.train, &dir, &draft, &sizes, arguments.device.dtype())?;
    trainer.run(&mut |_| {})?;
    report(&trainer, &recipe.models.out)?;
    match peak_memory() {
        Some(peak) => say_line(&format!("peak memory {:.2} GiB, {:.2} planned", gib(peak), gib(planned.memory))),
        None => Ok(()),
    }
}

fn report(trainer: &Trainer<'_>, out: &Path) -> Result<()> {
    say_line(&format!("{} steps done; the draft is in {}", trainer.steps_done(), out.join("last").display()))?;
    if let Some(best) = trainer.best() {
        let (accepted, dir) = (best.held_out.accepted, best_dir(out));
        say_line(&format!(
            "best on held-out data: {accepted:.3} accepted drafts, after step {}, in {}",
            best.step,
            dir.display()
        ))?;
    }
    Ok(())
}

/// A recipe's conversations as they are written. They are read before the target, whose loading takes longer than finding out that
/// a file is not there.
pub struct Conversations {
    training: Vec<Conversation>,
    held_out: Vec<Conversation>,
}

/// A recipe's conversations as a target sees them.
pub struct Examples {
    pub training: Vec<Example>,
    pub held_out: Vec<Example>,
}

impl Conversations {
    /// Reads both files of `recipe`.
    pub fn read(recipe: &Recipe) -> Result<Self> {
        let Models { data, held_out, .. } = &recipe.models;
        Ok(Self { training: training::read(data)?, held_out: training::read(held_out)? })
    }

    /// Encodes them for `target`, and lets go of what was read.
    pub fn encode(self, recipe: &Recipe, target: &ServedTarget) -> Result<Examples> {
        // What the context does not hold cannot be trained on either.
        let longest = recipe.train.max_length.min(target.model.llama().config.max_position_embeddings);
        Ok(Examples {
            training: encoded(&self.training, &recipe.models.data, target, longest)?,
            held_out: encoded(&self.held_out, &recipe.models.held_out, target, longest)?,
        })
    }
}

/// The conversations of `path` that fit `max_length` rows; says how many did not.
fn encoded(
    conversations: &[Conversation],
    path: &Path,
    target: &ServedTarget,
    max_length: usize,
) -> Result<Vec<Example>> {
    let encode = |conversation| Example::encode(conversation, target);
    let all = conversations.iter().map(encode).collect::<Result<Vec<_>>>()?;
    let count = all.len();
    let kept: Vec<Example> = all.into_iter().filter(|example| example.ids.len() <= max_length).collect();
    if kept.len() < count {
        eprintln!(
            "{}: {} of {count} conversations are longer than {max_length} rows and left out",
            path.display(),
            count - kept.len()
        );
    }
    Ok(kept)
}

/// The draft that training starts from.
pub fn first_draft(recipe: &Recipe, examples: &[Example], target: &Llama, device: &Device) -> Result<DraftModel> {
    let Some(start) = &recipe.models.start else {
        let config = recipe.models.draft(&target.config)?;
        return Ok(fresh_draft(config, examples, recipe.train.seed, target, device));
    };
    let draft = DraftModel::open(&hub::resolve(start)?, target, device)?;
    match recipe.models.draft_vocab_size {
        Some(size) if size != draft.vocab().targets().len() => {
            draft.with_vocab(most_said(examples, size, target.config.vocab_size), target)
        }
        _ => Ok(draft),
    }
}

/// An untrained draft whose vocabulary is the ids that the assistant says most often; its weights follow from `seed`.
pub fn fresh_draft(
    config: DraftConfig,
    examples: &[Example],
    seed: u64,
    target: &Llama,
    device: &Device,
) -> DraftModel {
    device.seed(seed);
    let vocabulary = most_said(examples, config.draft_vocab_size, target.config.vocab_size);
    DraftModel::init(config, vocabulary, target, device)
}

/// The `size` ids, of `vocabulary`, that the assistant says most often.
fn most_said(examples: &[Example], size: usize, vocabulary: usize) -> VocabMap {
    match size == vocabulary {
        true => VocabMap::identity(size),
        false => VocabMap::most_frequent(&counts(examples, vocabulary), size),
    }
}

/// How often the assistant says each id.
fn counts(examples: &[Example], vocabulary: usize) -> Vec<u64> {
    let mut counts = vec![0; vocabulary];
    for example in examples {
        for (&id, _) in example.ids.iter().zip(&example.assistant).filter(|(_, said)| **said) {
            counts[id as usize] += 1;
        }
    }
    counts
}

fn print_plan(recipe: &Recipe, assume: Option<(usize, usize)>, dtype: DType) -> Result<()> {
    let dir = builtin::resolve_configs(&recipe.models.target)?;
    let target = LlamaConfig::open(&dir)?;
    let draft = recipe.models.draft(&target)?;
    let data = recipe.models.data.display();
    let (sizes, source) = match assume {
        Some((conversations, rows)) => {
            (vec![Size { rows, prompt: 0, answer: rows, image: false }; conversations], "assumed".to_string())
        }
        None if recipe.models.data.exists() => (sizes(&recipe.models.data, &dir)?, format!("counted in {data}")),
        None => (Vec::new(), format!("{data} is not there yet; see --assume")),
    };
    let plan = whole_plan(&recipe.train, &dir, &draft, &sizes, dtype)?;
    say_line(&format!(
        "target         {} ({} layers, width {})\n\
         draft          {}, taps {:?}, vocabulary {} of {}\n\
         objective      {}\n\
         data           {source}\n{}",
        recipe.models.target,
        target.num_hidden_layers,
        target.hidden_size,
        draft.method,
        draft.taps,
        draft.draft_vocab_size,
        target.vocab_size,
        recipe.train.objective.objective().name(),
        plan
    ))
}

/// The plan for the target in `dir`, tower and projector included.
fn whole_plan(config: &TrainConfig, dir: &Path, draft: &DraftConfig, sizes: &[Size], dtype: DType) -> Result<Plan> {
    let mut plan = plan(config, &LlamaConfig::open(dir)?, draft, sizes, dtype.size() as u64);
    // A plan knows language models; tower and projector come on top, in f32 as the CPU keeps them.
    let vision = Geometry::open(dir)?.parameters().saturating_sub(plan.target_parameters);
    plan.target_parameters += vision;
    plan.memory += vision * 4;
    Ok(plan)
}

fn parse_size(text: &str) -> std::result::Result<(usize, usize), Error> {
    let numbers = text.split_once('x').and_then(|(n, l)| Some((n.parse().ok()?, l.parse().ok()?)));
    numbers
        .filter(|&(n, l)| n > 0 && l > 0)
        .ok_or_else(|| Error::invalid("--assume", "conversations x tokens", text, "write for example 60000x500"))
}
