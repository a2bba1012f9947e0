//! Training conversations of the demo: charts, answered by the target itself.

use sightdraft_core::{Result, progress};
use sightdraft_datasets::Conversation;
use sightdraft_datasets::charts::lessons;
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_target::{PromptRows, ServedTarget};
use sightdraft_train::example::{open_images, question as asked};
use sightdraft_train::{Example, Picture};

/// Prompts answered at once.
const BATCH: usize = 16;

/// Longest answer in tokens.
const LONGEST: usize = 128;

/// `count` training charts from number `first` on, each with the greedy answer of `target`: what serving at temperature 0 will
/// ask of a draft.
pub fn answered(target: &ServedTarget, first: u64, count: usize) -> Result<Vec<Example>> {
    let bar = progress::bar(count as u64, "target answers");
    let mut examples = Vec::with_capacity(count);
    let lessons: Vec<Conversation> = lessons(first..first + count as u64).collect();
    for lessons in lessons.chunks(BATCH) {
        let mut batch = lessons.iter().map(|lesson| question(target, lesson)).collect::<Result<Vec<_>>>()?;
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

/// What `lesson` asks: an example without its answer yet, and its rows.
fn question(target: &ServedTarget, lesson: &Conversation) -> Result<(Example, PromptRows)> {
    let prompt = target.prompt(asked(&lesson.messages), &open_images(lesson)?)?;
    let rows = target.model.rows(&prompt)?;
    let pictures = lesson.images.iter().map(|image| Picture::new(image.clone(), target));
    let example = Example {
        id: lesson.id.clone(),
        assistant: vec![false; rows.ids.len()],
        ids: rows.ids.clone(),
        images: pictures.collect::<Result<_>>()?,
    };
    Ok((example, rows))
}
