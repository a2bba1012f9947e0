//! What the tensors of a tower are called in Hugging Face's checkpoints.

use crate::Family;

/// Names behind the tower's prefix; those of a layer stand behind `{layers}.{index}.`.
pub(crate) struct Names {
    /// Prefix of the tower in a LLaVA checkpoint.
    pub tower: &'static str,
    pub class: &'static str,
    pub patch: &'static str,
    pub position: &'static str,
    /// The norm before the layers, where there is one.
    pub pre_norm: Option<&'static str>,
    pub layers: &'static str,
    pub norm1: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub output: &'static str,
    pub norm2: &'static str,
    /// LayerScale, where there is one.
    pub scales: Option<[&'static str; 2]>,
    pub post_norm: &'static str,
}

const CLIP: Names = Names {
    tower: "vision_tower.vision_model.",
    class: "embeddings.class_embedding",
    patch: "embeddings.patch_embedding",
    position: "embeddings.position_embedding.weight",
    // The misspelling is Hugging Face's.
    pre_norm: Some("pre_layrnorm"),
    layers: "encoder.layers",
    norm1: "layer_norm1",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    output: "self_attn.out_proj",
    norm2: "layer_norm2",
    scales: None,
    post_norm: "post_layernorm",
};

const DINOV2: Names = Names {
    tower: "vision_tower.",
    class: "embeddings.cls_token",
    patch: "embeddings.patch_embeddings.projection",
    position: "embeddings.position_embeddings",
    pre_norm: None,
    layers: "encoder.layer",
    norm1: "norm1",
    query: "attention.attention.query",
    key: "attention.attention.key",
    value: "attention.attention.value",
    output: "attention.output.dense",
    norm2: "norm2",
    scales: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
    post_norm: "layernorm",
};

impl Family {
    /// What its tensors are called.
    pub(crate) fn names(self) -> &'static Names {
        match self {
            Self::Clip => &CLIP,
            Self::Dinov2 => &DINOV2,
        }
    }
}
