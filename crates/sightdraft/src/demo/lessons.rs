//! Training conversations of the demo: charts, answered by the target itself.

use sightdraft_core::{Message, Result, progress};
use sightdraft_datasets::ImageSource;
use sightdraft_datasets::charts::{Chart, Split};
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_eval::benchmarks::charts::picture;
use sightdraft_target::{PromptRows, ServedTarget};
use sightdraft_train::{Example, Picture};

/// Prompts answered at once.
const BATCH: usize = 16;

/// Longest answer in tokens.
const LONGEST: usize = 128;

/// Seed of the training charts; the benchmark draws from another set.
const SEED: u64 = 1;

/// `count` training charts from number `first` on, each with the greedy answer of `target`: what serving at temperature 0 will
/// ask of a draft.
pub fn answered(target: &ServedTarget, first: u64, count: usize) -> Result<Vec<Example>> {
    let bar = progress::bar(count as u64, "target answers");
    let mut examples = Vec::with_capacity(count);
    let numbers: Vec<u64> = (first..first + count as u64).collect();
    for numbers in numbers.chunks(BATCH) {
        let mut batch = numbers.iter().map(|&number| question(target, number)).collect::<Result<Vec<_>>>()?;
        let rows: Vec<PromptRows> = batch.iter().map(|(_, rows)| rows.clone()).collect();
        let mut done = |index: usize, answer: Vec<u32>, _stop| {
            let example: &mut Example = &mut batch[index].0;
            example.assistant.resize(example.ids.len() + answer.len(), true);
            example.ids.extend(answer);
            bar.inc(1);
            Ok(())
        };
        generate_batch(target.model.as_ref(), &rows, LONGEST, &target.eos, Sampling::GREEDY, &mut done)?;
        examples.extend(batch.into_iter().map(|(example, _)| example));
    }
    bar.finish_and_clear();
    Ok(examples)
}

/// The question about a training chart: an example without its answer yet, and its rows.
fn question(target: &ServedTarget, number: u64) -> Result<(Example, PromptRows)> {
    let chart = Chart::new(SEED, Split::Train, number);
    let message = Message::user(format!("<image>\n{}", chart.question));
    let prompt = target.prompt(&[message], &[picture(&chart)])?;
    let rows = target.model.rows(&prompt)?;
    let example = Example {
        id: number.to_string(),
        assistant: vec![false; rows.ids.len()],
        ids: rows.ids.clone(),
        images: vec![Picture::new(ImageSource::Drawn(chart.image), target)?],
    };
    Ok((example, rows))
}
