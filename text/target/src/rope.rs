//! Rotary position embedding (Su et al. 2021) with explicit position ids, half-split as Hugging Face stores it.

use std::f64::consts::TAU;

use burn::tensor::{Device, Tensor, TensorData};

use crate::RopeConfig;
use crate::config::RopeScaling;

/// Inverse frequencies of one head width.
#[derive(Debug, Clone)]
pub struct Rope {
    /// f64 inverse frequencies after scaling, `head_dim / 2` of them.
    pub inv_freq: Vec<f64>,
}

impl Rope {
    /// The frequencies of `config` for heads of width `head_dim`.
    pub fn new(config: &RopeConfig, head_dim: usize) -> Self {
        let base = |i: usize| config.theta.powf(-((2 * i) as f64) / head_dim as f64);
        let inv_freq = (0..head_dim / 2).map(|i| scaled(base(i), config.scaling.as_ref())).collect();
        Self { inv_freq }
    }

    /// cos and sin of `positions` `[B, n]`, each `[B, 1, n, head_dim]`, computed in f64 on the host and sent once; share them
    /// between the layers of a pass.
    ///
    /// # Panics
    /// Rows of `positions` of different lengths.
    pub fn angles(&self, positions: &[Vec<usize>], device: &Device) -> (Tensor<4>, Tensor<4>) {
        let (batch, rows, half) = (positions.len(), positions.first().map_or(0, Vec::len), self.inv_freq.len());
        assert!(positions.iter().all(|row| row.len() == rows), "position rows differ in length");
        let mut cos = Vec::with_capacity(batch * rows * 2 * half);
        let mut sin = Vec::with_capacity(batch * rows * 2 * half);
        for &position in positions.iter().flatten() {
            let pairs: Vec<(f64, f64)> = self.inv_freq.iter().map(|f| (position as f64 * f).sin_cos()).collect();
            // Twice over: dimension i and i + head_dim / 2 turn by the same angle.
            for _ in 0..2 {
                sin.extend(pairs.iter().map(|p| p.0 as f32));
                cos.extend(pairs.iter().map(|p| p.1 as f32));
            }
        }
        let shape = [batch, 1, rows, 2 * half];
        let send = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, shape), device);
        (send(cos), send(sin))
    }
}

/// LLaMA-3.1's scaling divides low frequencies, keeps high ones and blends between; the linear one divides them all.
fn scaled(frequency: f64, scaling: Option<&RopeScaling>) -> f64 {
    match scaling {
        None => frequency,
        Some(RopeScaling::Linear { factor }) => frequency / factor,
        Some(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }) => {
            let turns = *original_max_position_embeddings as f64 * frequency / TAU;
            if turns < *low_freq_factor {
                return frequency / factor;
            }
            if turns > *high_freq_factor {
                return frequency;
            }
            let blend = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            frequency * (blend + (1.0 - blend) / factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use sightdraft_kernels::turn;

    use super::*;

    #[test]
    fn position_zero_leaves_a_vector_as_it_is_and_lengths_are_kept() {
        let device = Device::flex();
        let rope = Rope::new(&RopeConfig { theta: 10000.0, scaling: None }, 4);
        let x = Tensor::<4>::from_data([[[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]]], &device);
        let y = turn(x, &rope.angles(&[vec![0, 1]], &device));
        let y: Vec<f32> = y.into_data().try_to_vec().expect("f32");
        assert_eq!(&y[..4], &[1.0, 2.0, 3.0, 4.0]);
        // Pairs are (0, 2) and (1, 3): half-split.
        let (sin, cos) = 1f32.sin_cos();
        assert!((y[4] - (cos - 3.0 * sin)).abs() < 1e-6 && (y[6] - (3.0 * cos + sin)).abs() < 1e-6);
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let plain = Rope::new(&RopeConfig { theta: 1e4, scaling: None }, 8);
        let linear = Rope::new(&RopeConfig { theta: 1e4, scaling: Some(RopeScaling::Linear { factor: 4.0 }) }, 8);
        for (a, b) in plain.inv_freq.iter().zip(&linear.inv_freq) {
            assert!((a / 4.0 - b).abs() < 1e-12);
        }
    }
}
