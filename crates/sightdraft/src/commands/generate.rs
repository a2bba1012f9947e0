//! `sightdraft generate`: one answer, streamed.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sightdraft_core::{Message, Result, Role, hub};
use sightdraft_decode::{Acceptance, Generation, Request, Sampling, Seconds, Stop, TreeChoice, generate};
use sightdraft_draft::{Draft, DraftModel};
use sightdraft_eval::metrics::total;
use sightdraft_target::ServedTarget;
use sightdraft_vision::Image;

use crate::arguments::{DeviceArguments, SamplingArguments, at_least_one, temperature};
use crate::builtin;
use crate::costs::tuner;
use crate::output::{print_json, say};
use crate::tree::TreeArguments;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Target: a directory, a hub name, or `builtin`.
    #[arg(long)]
    target: String,
    /// Draft: a directory or a hub name; plain decoding if not given.
    #[arg(long)]
    draft: Option<String>,
    /// What to ask.
    #[arg(long)]
    prompt: String,
    /// A picture (PNG or JPEG) to ask about; several are shown in order. They stand before the prompt unless it says `<image>`.
    #[arg(long)]
    image: Vec<PathBuf>,
    /// Most tokens of the answer.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    max_new_tokens: usize,
    /// 0 is greedy.
    #[arg(long, default_value_t = 0.0, value_parser = temperature)]
    temperature: f32,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    tree: TreeArguments,
    #[command(flatten)]
    device: DeviceArguments,
    /// Print one JSON object at the end instead of streaming.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    text: String,
    token_ids: Vec<u32>,
    prompt_tokens: usize,
    new_tokens: usize,
    target_passes: usize,
    accepted_per_pass: f64,
    emitted_per_pass: f64,
    seconds: Seconds,
    tokens_per_second: f64,
    stop: Stop,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let images = arguments.image.iter().map(|path| Image::open(path)).collect::<Result<Vec<_>>>()?;
    let (device, taken) = arguments.device.pick()?;
    eprintln!("{taken}");
    let target = ServedTarget::open(&builtin::resolve(&arguments.target)?, arguments.device.dtype(), &device)?;
    let draft = match &arguments.draft {
        Some(name) => {
            let draft = DraftModel::open(&hub::resolve(name)?, target.model.llama(), &device)?;
            Some(draft.for_inference())
        }
        None => None,
    };
    let message = Message { role: Role::User, content: question(&arguments.prompt, images.len()) };
    let prompt = target.model.rows(&target.prompt(&[message], &images)?)?;
    let tree = match &draft {
        Some(draft) if arguments.tree.is_adaptive() => TreeChoice::Adaptive(tuner(&target, draft, &taken)?),
        _ => arguments.tree.shape(&device).into(),
    };
    let request = Request {
        prompt,
        max_new_tokens: arguments.max_new_tokens,
        eos: target.eos.clone(),
        sampling: Sampling {
            temperature: arguments.temperature,
            top_p: arguments.sampling.top_p,
            top_k: arguments.sampling.top_k,
            seed: arguments.sampling.seed,
        },
        tree,
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    };
    let draft = draft.as_ref().map(|draft| draft as &dyn Draft);
    if arguments.json {
        let generation = generate(target.model.as_ref(), draft, &request, &mut |_| {})?;
        return print_json(&answer(&target, &request, generation)?);
    }
    let generation = stream(&target, draft, &request)?;
    eprintln!("{}", footer(&generation));
    Ok(())
}

/// The prompt with a mark for every picture that it does not place itself.
pub fn question(prompt: &str, images: usize) -> String {
    let placed = prompt.matches("<image>").count();
    format!("{}{prompt}", "<image>\n".repeat(images.saturating_sub(placed)))
}

/// Generates and prints the text as it becomes certain.
pub fn stream(target: &ServedTarget, draft: Option<&dyn Draft>, request: &Request) -> Result<Generation> {
    let mut pieces = target.tokenizer.stream();
    let mut failed = None;
    let generation = generate(target.model.as_ref(), draft, request, &mut |ids| match pieces.push(ids) {
        Ok(piece) => failed = failed.take().or(say(&piece).err()),
        Err(error) => failed = Some(error),
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    say(&format!("{}\n", pieces.finish()?))?;
    Ok(generation)
}

/// The counts in one line.
pub fn footer(generation: &Generation) -> String {
    let counters = &generation.counters;
    let passes = counters.target_passes.max(1) as f64;
    format!(
        "{} tokens in {} target passes, {:.2} accepted and {:.2} emitted per pass, {:.1} tokens/s",
        generation.token_ids.len(),
        counters.target_passes,
        counters.accepted as f64 / passes,
        counters.emitted as f64 / passes,
        generation.token_ids.len() as f64 / total(&generation.seconds).max(1e-9),
    )
}

fn answer(target: &ServedTarget, request: &Request, generation: Generation) -> Result<Answer> {
    let counters = &generation.counters;
    let passes = counters.target_passes.max(1) as f64;
    Ok(Answer {
        text: target.tokenizer.decode(&generation.token_ids)?,
        prompt_tokens: request.prompt.ids.len(),
        new_tokens: generation.token_ids.len(),
        target_passes: counters.target_passes,
        accepted_per_pass: counters.accepted as f64 / passes,
        emitted_per_pass: counters.emitted as f64 / passes,
        tokens_per_second: generation.token_ids.len() as f64 / total(&generation.seconds).max(1e-9),
        seconds: generation.seconds,
        stop: generation.stop,
        token_ids: generation.token_ids,
    })
}

#[cfg(test)]
mod tests {
    use super::question;

    #[test]
    fn pictures_that_the_prompt_does_not_place_come_first() {
        assert_eq!(question("What?", 0), "What?");
        assert_eq!(question("What?", 2), "<image>\n<image>\nWhat?");
        assert_eq!(question("Is <image> red?", 1), "Is <image> red?");
    }
}
