//! Weights of the M-step: adaptive rejection weighting (ARW), confidence-aware regularisation (CAR) and the leave-one-out
//! baseline. Their roles are the VSD paper's (Zou et al. 2026); the formulas are derived. All work on detached host values of
//! one anchor's S paths.

/// ARW: `beta_s = clip((sum_r a_r - a_s) / (S - 1), 0, ceiling)`, the acceptance of the other samples. One sample gives 0.
pub fn leave_one_out_acceptance(accepted: &[bool], ceiling: f32) -> Vec<f32> {
    let total = accepted.iter().filter(|a| **a).count() as f32;
    let others = accepted.len().saturating_sub(1) as f32;
    accepted
        .iter()
        .map(|&a| if others == 0.0 { 0.0 } else { ((total - f32::from(u8::from(a))) / others).clamp(0.0, ceiling) })
        .collect()
}

/// CAR: among the rejected paths `softmax(gamma * confidence) * #rejected`, where confidence is the mean log q of the path's
/// tokens; 1 for the accepted.
pub fn car_weights(confidence: &[f32], accepted: &[bool], gamma: f32) -> Vec<f32> {
    let rejected = || confidence.iter().zip(accepted).filter(|(_, a)| !**a).map(|(c, _)| gamma * c);
    let top = rejected().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = rejected().map(|c| (c - top).exp()).sum();
    let count = rejected().count() as f32;
    confidence.iter().zip(accepted).map(|(c, &a)| if a { 1.0 } else { (gamma * c - top).exp() / sum * count }).collect()
}

/// `R_s` minus the mean of the other rewards; one sample has no baseline.
pub fn leave_one_out_advantage(rewards: &[f32]) -> Vec<f32> {
    let others = rewards.len().saturating_sub(1) as f32;
    let total: f32 = rewards.iter().sum();
    rewards.iter().map(|r| if others == 0.0 { *r } else { r - (total - r) / others }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_one_out_on_the_worked_example() {
        assert_eq!(leave_one_out_advantage(&[1.0, 2.0, 6.0]), [-3.0, -1.5, 4.5]);
        let beta = leave_one_out_acceptance(&[true, false, true, true], 1.0);
        for (b, want) in beta.iter().zip([0.66667, 1.0, 0.66667, 0.66667]) {
            assert!((b - want).abs() < 1e-5, "{beta:?}");
        }
    }

    #[test]
    fn arw_of_none_all_and_one() {
        assert_eq!(leave_one_out_acceptance(&[false; 4], 0.9), [0.0; 4]);
        assert_eq!(leave_one_out_acceptance(&[true; 4], 0.9), [0.9; 4]);
        assert_eq!(leave_one_out_acceptance(&[true], 0.9), [0.0]);
    }

    #[test]
    fn car_pushes_on_the_confident_and_keeps_the_sum() {
        let c = car_weights(&[-0.1, -3.0, -1.0, -0.5], &[true, false, false, true], 1.0);
        assert_eq!((c[0], c[3]), (1.0, 1.0));
        assert!(c[2] > c[1]);
        assert!((c[1] + c[2] - 2.0).abs() < 1e-6);
        assert_eq!(car_weights(&[-0.1, -3.0], &[false, false], 0.0), [1.0, 1.0]);
    }
}
