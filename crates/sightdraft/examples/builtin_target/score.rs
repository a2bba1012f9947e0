//! Plain greedy decoding on held-out charts.

use sightdraft_core::Result;
use sightdraft_datasets::charts::{Chart, ChartScore, Split, chart_score};
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_target::{Llava, Prompt, Target};

use crate::batch::Encoder;
use crate::tokenizer::EOS;

/// No answer is longer.
const LONGEST: usize = 120;
/// Answers that are printed.
const SHOWN: usize = 2;

/// The share of `count` held-out charts that the model reads right.
///
/// # Errors
/// What the tokenizer refuses.
pub fn run(model: &Llava, encoder: &Encoder, seed: u64, count: u64) -> Result<ChartScore> {
    let charts: Vec<Chart> = (0..count).map(|i| Chart::new(seed, Split::HeldOut, i)).collect();
    let prompts = charts.iter().map(|chart| {
        let sample = encoder.sample(chart)?;
        model.rows(&Prompt { ids: sample.prompt, images: vec![sample.pixels] })
    });
    let prompts = prompts.collect::<Result<Vec<_>>>()?;
    let mut answers = vec![String::new(); charts.len()];
    generate_batch(model, &prompts, LONGEST, &[EOS], Sampling::GREEDY, &mut |index, ids, _| {
        answers[index] = encoder.tokenizer.decode(&ids)?;
        Ok(())
    })?;
    for (chart, answer) in charts.iter().zip(&answers).take(SHOWN) {
        println!("  {}\n    true:  {}\n    model: {}", chart.question, chart.answer, answer.trim());
    }
    Ok(chart_score(&charts, &answers))
}
