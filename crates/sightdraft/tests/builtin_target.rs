//! The built-in target in the repository reads charts that it was not trained on.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use sightdraft_core::{Message, Role};
use sightdraft_datasets::charts::{Chart, ChartScore, Split, chart_score};
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_target::ServedTarget;
use sightdraft_vision::Image;

/// The seed that the target was trained with.
const SEED: u64 = 1;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/builtin")
}

fn image(chart: &Chart) -> Image {
    let (width, height) = (chart.image.width() as usize, chart.image.height() as usize);
    Image::from_rgb(width, height, chart.image.as_raw().clone()).unwrap()
}

/// Asks each chart's question beside the picture of the chart `shift` places on.
fn score(charts: &[Chart], shift: usize) -> ChartScore {
    let target = ServedTarget::open(&assets(), DType::F32, &Device::flex()).unwrap();
    let prompts: Vec<_> = charts
        .iter()
        .zip(charts.iter().cycle().skip(shift))
        .map(|(chart, shown)| {
            let content = format!("<image>\n{}", chart.question);
            let prompt = target.prompt(&[Message { role: Role::User, content }], &[image(shown)]).unwrap();
            target.model.rows(&prompt).unwrap()
        })
        .collect();
    let mut answers = vec![String::new(); charts.len()];
    generate_batch(target.model.as_ref(), &prompts, 120, &target.eos, Sampling::GREEDY, &mut |index, ids, _| {
        answers[index] = target.tokenizer.decode(&ids)?;
        Ok(())
    })
    .unwrap();
    chart_score(charts, &answers)
}

#[test]
fn it_reads_held_out_charts_far_above_chance_and_only_through_the_picture() {
    let charts: Vec<Chart> = (0..40).map(|i| Chart::new(SEED, Split::HeldOut, i)).collect();
    let (seen, swapped) = (score(&charts, 0), score(&charts, 1));
    assert!(seen.value > 0.9 && seen.title > 0.85, "{seen:?}");
    assert!(swapped.value < swapped.chance && swapped.title < 0.1, "{swapped:?}");
}

#[test]
fn it_is_small() {
    let bytes: u64 = std::fs::read_dir(assets()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 8 << 20, "{bytes} bytes");
}
