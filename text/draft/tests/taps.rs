//! Taps are what they are called: in a target whose layer i adds the constant i, every tap reads back as a known number.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use sightdraft_draft::{DraftConfig, Method};
use sightdraft_target::{Llama, LlamaConfig, Mask, Projection, RopeConfig};

const WIDTH: usize = 8;

fn config(layers: usize) -> LlamaConfig {
    LlamaConfig {
        hidden_size: WIDTH,
        intermediate_size: 8,
        num_hidden_layers: layers,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        vocab_size: 12,
        max_position_embeddings: 16,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: false,
    }
}

/// Zeros, and a bias of `constant`.
fn adds(inputs: usize, constant: f32, device: &Device) -> Projection {
    let bias = Tensor::<1>::ones([WIDTH], device) * constant;
    let weight = Param::from_tensor(Tensor::zeros([inputs, WIDTH], device));
    Projection::Plain(Linear { weight, bias: Some(Param::from_tensor(bias)) })
}

/// Attention adds nothing and the MLP of layer i adds i.
fn counting_target(layers: usize, device: &Device) -> Llama {
    let mut target = Llama::init(&config(layers), device);
    for (index, layer) in target.layers.iter_mut().enumerate() {
        layer.self_attn.o_proj = adds(8, 0.0, device);
        layer.mlp.down_proj = adds(8, index as f32, device);
    }
    target
}

#[test]
fn default_taps_of_shallow_targets_read_back_exactly() {
    let device = Device::flex();
    for layers in [3, 4] {
        let target = counting_target(layers, &device);
        let taps = DraftConfig::for_target(Method::Eagle3, &target.config, 12).unwrap().taps;
        assert!(taps.len() == 3 && taps.windows(2).all(|pair| pair[0] < pair[1]), "{layers} layers: {taps:?}");
        assert!(taps[2] <= layers, "{layers} layers: {taps:?}");
        let embeds = target.embed_ids(&[3, 7]);
        let pass = target.forward(embeds.clone(), &[vec![0, 1]], &Mask::Causal, &mut target.new_cache(), &taps);
        let tapped = pass.taps.unwrap();
        for (place, &tap) in taps.iter().enumerate() {
            // The input of layer `tap`: embedding + 0 + 1 + .. + (tap - 1).
            let mut want = embeds.clone();
            (0..tap).for_each(|layer| want = want.clone() + layer as f32);
            let found = tapped.clone().narrow(2, place * WIDTH, WIDTH);
            found.into_data().assert_eq(&want.into_data(), true);
        }
    }
}

#[test]
fn a_target_of_one_or_two_layers_is_refused_by_the_name_of_the_key() {
    for layers in [1, 2] {
        let message = DraftConfig::for_target(Method::Eagle3, &config(layers), 12).unwrap_err().to_string();
        assert!(message.contains("num_hidden_layers") && message.contains(&layers.to_string()), "{message}");
    }
}
