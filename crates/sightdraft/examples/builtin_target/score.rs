//! Plain greedy decoding on held-out charts.

use burn::prelude::*;
use sightdraft_core::Result;
use sightdraft_datasets::charts::{Chart, ChartScore, Split, chart_score};
use sightdraft_target::{Llava, Mask};

use crate::batch::{Encoder, Sample};
use crate::tokenizer::{EOS, IMAGE};

/// No answer is longer.
const LONGEST: usize = 120;

/// The share of `count` held-out charts that the model reads right.
///
/// # Errors
/// What the tokenizer refuses.
pub fn run(model: &Llava, encoder: &Encoder, seed: u64, count: u64) -> Result<ChartScore> {
    let charts: Vec<Chart> = (0..count).map(|i| Chart::new(seed, Split::HeldOut, i)).collect();
    let mut answers = Vec::with_capacity(charts.len());
    for chart in &charts {
        let ids = greedy(model, &encoder.sample(chart)?);
        answers.push(encoder.tokenizer.decode(&ids)?);
    }
    for (chart, answer) in charts.iter().zip(&answers).take(3) {
        println!("  {} ? {}\n    true:  {}\n    model: {}", chart.title, chart.question, chart.answer, answer.trim());
    }
    Ok(chart_score(&charts, &answers))
}

fn greedy(model: &Llava, sample: &Sample) -> Vec<u32> {
    let device = model.llama.embed_tokens.weight.val().device();
    let embed = |ids: &[u32]| {
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        let count = ids.len();
        model.llama.embed(Tensor::from_data(TensorData::new(ids, [1, count]), &device))
    };
    let image = sample.prompt.iter().position(|id| *id == IMAGE).unwrap_or(0);
    let images = model.vision.forward(std::slice::from_ref(&sample.pixels));
    let mut rows = Tensor::cat(vec![embed(&sample.prompt[..image]), images, embed(&sample.prompt[image + 1..])], 1);
    let (mut cache, mut ids) = (model.llama.new_cache(), Vec::new());
    while ids.len() < LONGEST {
        let n = rows.dims()[1];
        let positions = [(cache.len()..cache.len() + n).collect()];
        let pass = model.llama.forward(rows, &positions, &Mask::Causal, &mut cache, &[]);
        let logits = model.llama.logits(pass.hidden.narrow(1, n - 1, 1));
        let id = logits.argmax(2).into_scalar::<i64>() as u32;
        if id == EOS {
            break;
        }
        ids.push(id);
        rows = embed(&[id]);
    }
    ids
}
