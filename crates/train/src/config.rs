//! Recipes: every key documented, defaulted, and checked. Unknown keys are errors.

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Result};

use crate::objective::{Elbo, Em, Objective, SoftCe, Survival};

/// Which objective, by name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum ObjectiveConfig {
    /// EAGLE-3's cross-entropy.
    SoftCe(SoftCe),
    /// VSD by expectation-maximisation.
    Em(Em),
    /// VSD's closed form at T=0.
    Survival(Survival),
    /// VSD's bound by score function.
    Elbo(Elbo),
}

impl ObjectiveConfig {
    /// The objective itself.
    pub fn build(&self) -> Box<dyn Objective> {
        match *self {
            Self::SoftCe(o) => Box::new(o),
            Self::Em(o) => Box::new(o),
            Self::Survival(o) => Box::new(o),
            Self::Elbo(o) => Box::new(o),
        }
    }

    /// Paths per anchor; 1 where the objective samples none.
    fn samples(&self) -> usize {
        match self {
            Self::SoftCe(_) => 1,
            Self::Em(o) => o.samples,
            Self::Survival(o) => o.samples,
            Self::Elbo(o) => o.samples,
        }
    }
}

/// AdamW with linear warm-up and cosine decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Peak learning rate; default 1e-4.
    pub lr: f64,
    /// The cosine ends at this share of the peak; default 0.05.
    pub final_lr: f64,
    /// Share of all steps that warms up; default 0.05.
    pub warmup: f64,
    /// Decay of the first moment; default 0.9.
    pub beta1: f32,
    /// Decay of the second moment; default 0.95.
    pub beta2: f32,
    /// Added to the root of the second moment; default 1e-8.
    pub epsilon: f32,
    /// Decoupled weight decay; default 0.
    pub weight_decay: f32,
    /// The gradient's global norm is clipped here; default 0.5.
    pub clip: f64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        let (lr, final_lr, warmup, clip) = (1e-4, 0.05, 0.05, 0.5);
        Self { lr, final_lr, warmup, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip }
    }
}

impl OptimConfig {
    /// Checks what types cannot.
    fn validate(&self) -> Result<()> {
        let (above, share) = ("a positive number", "a number from 0 to 1");
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let part = |x: f64| (0.0..=1.0).contains(&x);
        let below_one = |x: f32| (0.0..1.0).contains(&x);
        let checks = [
            ("optim.lr", self.lr, above, positive(self.lr)),
            ("optim.final_lr", self.final_lr, share, part(self.final_lr)),
            ("optim.warmup", self.warmup, share, part(self.warmup)),
            ("optim.beta1", self.beta1.into(), "a number from 0 to below 1", below_one(self.beta1)),
            ("optim.beta2", self.beta2.into(), "a number from 0 to below 1", below_one(self.beta2)),
            ("optim.epsilon", self.epsilon.into(), above, positive(self.epsilon.into())),
            ("optim.weight_decay", self.weight_decay.into(), share, part(self.weight_decay.into())),
            ("optim.clip", self.clip, above, positive(self.clip)),
        ];
        match checks.into_iter().find(|(.., holds)| !holds) {
            None => Ok(()),
            Some((key, found, expected, _)) => {
                Err(Error::invalid(key, expected, found.to_string(), "mend it in the recipe"))
            }
        }
    }

    /// The learning rate of optimiser step `step` (from 0) of `total`.
    pub fn learning_rate(&self, step: usize, total: usize) -> f64 {
        let warm = (self.warmup * total as f64).ceil();
        let at = step as f64 + 1.0;
        if at <= warm {
            return self.lr * at / warm;
        }
        let progress = ((at - warm) / (total as f64 - warm).max(1.0)).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.lr * (self.final_lr + (1.0 - self.final_lr) * cosine)
    }
}

/// Where the target's features come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// A target pass in every step.
    #[default]
    Online,
    /// One target pass in all, kept as f16 in `features/` of the output directory.
    Disk,
}

/// A training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Fixes everything: order, samples; default 42.
    pub seed: u64,
    /// Unrolled steps, L; default 5.
    pub unroll: usize,
    /// The objective; default `soft_ce`.
    pub objective: ObjectiveConfig,
    /// The optimiser.
    pub optim: OptimConfig,
    /// Times through the data; default 1.
    pub epochs: usize,
    /// Stops earlier, in optimiser steps; the schedule ends there too. Default none.
    pub max_steps: Option<usize>,
    /// Rows of one batch, padding included; default 1024.
    pub batch_tokens: usize,
    /// Batches per optimiser step; default 1.
    pub accumulate: usize,
    /// Longer conversations are left out (and counted); default 2048 rows.
    pub max_length: usize,
    /// Optimiser steps between checkpoints; default 100.
    pub checkpoint_every: usize,
    /// Optimiser steps between held-out measurements; default 100.
    pub evaluate_every: usize,
    /// Where the target's features come from; default online.
    pub features: Features,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            seed: 42,
            unroll: 5,
            objective: ObjectiveConfig::SoftCe(SoftCe::default()),
            optim: OptimConfig::default(),
            epochs: 1,
            max_steps: None,
            batch_tokens: 1024,
            accumulate: 1,
            max_length: 2048,
            checkpoint_every: 100,
            evaluate_every: 100,
            features: Features::Online,
        }
    }
}

impl TrainConfig {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// The key, what fits, what was given.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("unroll", self.unroll),
            ("epochs", self.epochs),
            ("batch_tokens", self.batch_tokens),
            ("accumulate", self.accumulate),
            ("checkpoint_every", self.checkpoint_every),
            ("evaluate_every", self.evaluate_every),
            ("max_length", self.max_length),
            ("max_steps", self.max_steps.unwrap_or(1)),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, v)| *v == 0) {
            return Err(Error::invalid(*key, "at least 1", "0", "mend it in the recipe"));
        }
        let samples = self.objective.samples();
        if !(1..=64).contains(&samples) {
            let found = samples.to_string();
            return Err(Error::invalid("objective.samples", "1 to 64", found, "mend it in the recipe"));
        }
        self.optim.validate()?;
        if self.features == Features::Disk && self.objective.build().rollout().is_some() {
            let mend = "set features = \"online\": scoring sampled paths needs the target";
            return Err(Error::invalid("features", "online for this objective", "disk", mend));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_named_defaulted_and_strict() {
        let text = r#"{"objective": {"name": "em", "samples": 64, "car": false}, "optim": {"lr": 0.0005}}"#;
        let config: TrainConfig = serde_json::from_str(text).unwrap();
        let ObjectiveConfig::Em(em) = config.objective else { panic!("{config:?}") };
        assert_eq!((em.samples, em.car, em.arw), (64, false, true));
        config.validate().unwrap();
        for wrong in [r#"{"sed": 1}"#, r#"{"objective": {"name": "em", "sample": 1}}"#, r#"{"optim": {"rate": 1}}"#] {
            assert!(serde_json::from_str::<TrainConfig>(wrong).is_err(), "{wrong}");
        }
        let text = r#"{"objective": {"name": "survival", "samples": 65}}"#;
        let message = serde_json::from_str::<TrainConfig>(text).unwrap().validate().unwrap_err().to_string();
        assert!(message.contains("objective.samples") && message.contains("65"), "{message}");
        for (key, wrong) in [("lr", "-1.0"), ("warmup", "1.5"), ("beta2", "1.0"), ("clip", "0.0"), ("epsilon", "0.0")] {
            let text = format!(r#"{{"optim": {{"{key}": {wrong}}}}}"#);
            let message = serde_json::from_str::<TrainConfig>(&text).unwrap().validate().unwrap_err().to_string();
            assert!(message.contains(&format!("optim.{key}")), "{message}");
        }
    }

    #[test]
    fn the_schedule_warms_up_and_comes_down() {
        let optim = OptimConfig { lr: 1.0, final_lr: 0.1, warmup: 0.1, ..OptimConfig::default() };
        assert_eq!(optim.learning_rate(0, 100), 0.1);
        assert_eq!(optim.learning_rate(9, 100), 1.0);
        assert!((optim.learning_rate(54, 100) - 0.55).abs() < 1e-9);
        assert!((optim.learning_rate(99, 100) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_run_of_no_steps_is_refused_by_name() {
        for (text, key) in [(r#"{"max_steps": 0}"#, "max_steps"), (r#"{"max_length": 0}"#, "max_length")] {
            let message = serde_json::from_str::<TrainConfig>(text).unwrap().validate().unwrap_err().to_string();
            assert!(message.starts_with(key), "{message}");
        }
    }
}
